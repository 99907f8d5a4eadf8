//! Jute, the encoding of ZooKeeper's messages: big-endian numbers, and lengths before what they count.

/// A message that is written.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        // Nothing that is sent here comes near two gigabytes.
        let mut writer = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        writer.0.extend(value);
        writer
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// What was encoded before.
    pub(super) fn raw(mut self, encoded: &[u8]) -> Self {
        self.0.extend(encoded);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }

    /// With its length before it, as it travels.
    pub(super) fn frame(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

/// A message that is read.
pub(super) struct Reader<'a>(&'a [u8]);

/// The message is not what the protocol has there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        self.array().map(|[byte]| byte != 0)
    }

    /// A length of -1 stands for nothing, which is no different from what is empty here.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.int()?.max(0)).map_err(|_| Malformed)?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed)
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        (0..self.int()?).map(|_| self.text()).collect()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Malformed> {
        self.take(LENGTH)?.try_into().map_err(|_| Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let written = Writer::default()
            .int(-7)
            .long(1 << 40)
            .flag(true)
            .text("/lock")
            .done();
        let mut reader = Reader::new(&written);
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(1 << 40));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!(reader.text(), Ok("/lock".to_owned()));
        assert_eq!(reader.int(), Err(Malformed));
    }

    #[test]
    fn lengths_beyond_the_message_are_malformed() {
        let written = Writer::default().int(5).raw(b"1234").done();
        assert_eq!(Reader::new(&written).bytes(), Err(Malformed));
        let nothing = Writer::default().int(-1).done();
        assert_eq!(Reader::new(&nothing).bytes(), Ok(&[][..]));
    }
}

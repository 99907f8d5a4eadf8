//! Which keys have to be read for a pattern.

/// Keys from the first to before the second.
pub(super) type Span = (Vec<u8>, Vec<u8>);

/// The spans in which all keys of the locks stand whose whole key starts so, without the keys beside locks, which are as
/// many as locks ever had tokens.
pub(super) fn spans(prefix: &str, pattern: &str) -> Vec<Span> {
    let literal = pattern.split(['*', '?']).next().unwrap_or_default();
    let start = format!("{prefix}{literal}");
    let beside = |kind: &str, more: &str| starting_with(&format!("{prefix}{kind}:{{{more}"));
    let mut spans = Vec::new();
    let (mut from, end) = starting_with(&start);
    // In order.
    for (first, last) in ["claim", "token"].map(|kind| beside(kind, "")) {
        if from < first && first < end {
            spans.push((from, first));
            from = last;
        }
    }
    spans.push((from, end));
    spans.push(beside("claim", &start));
    spans
}

fn starting_with(start: &str) -> Span {
    let mut end = start.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of a text is the last there is.
        Some(last) => *last += 1,
        // Behind every text; and a key is not empty.
        None => return (vec![0], vec![0xff]),
    }
    (start.as_bytes().to_vec(), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(prefix: &str, pattern: &str) -> Vec<(String, String)> {
        let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
        let spans = spans(prefix, pattern).into_iter();
        spans.map(|(from, to)| (text(from), text(to))).collect()
    }

    #[test]
    fn a_pattern_narrows_what_is_read() {
        let told = texts("lock:", "sync:*:7");
        let told: Vec<_> = told.iter().map(|(from, _)| from.as_str()).collect();
        let from = ["lock:sync:", "lock:claim:{lock:sync:"];
        assert_eq!(told, from);
    }

    #[test]
    fn keys_beside_locks_are_read_once_and_those_of_tokens_never() {
        for (prefix, start, end) in [("lock:", "lock:", "lock;"), ("", "\0", "\u{fffd}")] {
            let of = |text: &str| format!("{prefix}{text}");
            let expected = [
                (start.to_owned(), of("claim:{")),
                (of("claim:|"), of("token:{")),
                (of("token:|"), end.to_owned()),
                (
                    of(&format!("claim:{{{prefix}")),
                    of(&after("claim:{", prefix)),
                ),
            ];
            assert_eq!(texts(prefix, "*"), expected);
        }
    }

    fn after(kind: &str, prefix: &str) -> String {
        let mut text = format!("{kind}{prefix}");
        let last = text.pop().expect("something");
        text.push(char::from_u32(u32::from(last) + 1).expect("a character"));
        text
    }
}

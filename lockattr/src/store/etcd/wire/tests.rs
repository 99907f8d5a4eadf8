use super::*;

const OWNER: &str = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-7:42";

fn kv(value: &[u8]) -> KeyValue {
    KeyValue {
        value: value.into(),
        lease: 7,
        ..KeyValue::default()
    }
}

const LOCK: &str = "lock:sync:42";
const PERMITS: Sharing = Sharing::Permits {
    permits: 10,
    weight: 3,
};

fn claim(locks: &[String], sharing: Sharing) -> Claim<'_> {
    Claim::new(locks, OWNER, Duration::from_secs(30)).with(sharing)
}

fn text(value: Vec<u8>) -> String {
    String::from_utf8(value).expect("text")
}

#[test]
fn keys_are_frozen() {
    let names = Names::new("lock:");
    let holder = |sharing| text(names.holder(LOCK, sharing, OWNER));
    assert_eq!(holder(Sharing::Alone), LOCK);
    let start = format!("lock:claim:{{{LOCK}}}");
    assert_eq!(holder(PERMITS), format!("{start}permit:{OWNER}"));
    assert_eq!(holder(Sharing::Readers), format!("{start}reader:{OWNER}"));
    let place = text(names.place(LOCK, OWNER));
    assert_eq!(place, format!("{start}waiter:{OWNER}"));
    let ends = |range: Range| (text(range.key), text(range.range_end));
    let of = |kind: &str| format!("{start}{kind}");
    let all = (start.clone(), format!("lock:claim:{{{LOCK}~"));
    assert_eq!(ends(names.claims(LOCK)), all);
    let some = [
        (names.permits(LOCK), "permit:", "permit;"),
        (names.holders(LOCK), "permit:", "waiter:"),
        (names.queue(LOCK), "waiter:", "waiter;"),
    ];
    for (range, from, to) in some {
        assert_eq!(ends(range), (of(from), of(to)));
    }
    assert_eq!(names.raise(LOCK), b"lock:token:{lock:sync:42}");
}

#[test]
fn keys_are_read_as_they_were_made() {
    for prefix in ["lock:", ""] {
        let names = Names::new(prefix);
        let lock = format!("{prefix}sync:42");
        let key = names.holder(&lock, Sharing::Alone, OWNER);
        assert_eq!(names.read(&key), Some(KeyOf::Lock(&lock)));
        for sharing in [Sharing::Readers, PERMITS] {
            let key = names.holder(&lock, sharing, OWNER);
            assert_eq!(names.read(&key), Some(KeyOf::Holder(&lock)));
        }
        let place = names.place(&lock, OWNER);
        assert_eq!(names.read(&place), Some(KeyOf::Place(&lock)));
        assert_eq!(names.read(&names.raise(&lock)), None);
    }
    let names = Names::new("lock:");
    for key in [
        "other:a",
        "lock:{a}",
        "lock:claim:{lock:a}",
        "lock:claim:{lock:a}x",
    ] {
        assert_eq!(names.read(key.as_bytes()), None, "{key}");
    }
}

#[test]
fn values_are_frozen() {
    let locks = [LOCK.to_owned()];
    let since = UNIX_EPOCH + Duration::from_millis(1_764_000_000_123);
    let nobody = "00000000000000000000000000000000@web-7:42";
    let length = Duration::from_millis(1500);
    for (sharing, wish, slot) in [
        (Sharing::Alone, "1", ""),
        (Sharing::Readers, "shared", " 0"),
        (PERMITS, "3/10", " 2"),
    ] {
        let claim = claim(&locks, sharing);
        let number = if sharing == PERMITS { 2 } else { 0 };
        assert_eq!(text(waits(&claim)), format!("{OWNER} {wish} 30000"));
        let value = text(claimed(&claim, number, None));
        assert_eq!(value, format!("{OWNER} {wish} 30000{slot}"));
        let value = text(claimed(&claim, number, Some(since)));
        let told = format!("{OWNER} {wish} 30000{slot} @1764000000123");
        assert_eq!(value, told);
        let value = text(closed(&claim, number, length));
        assert_eq!(value, format!("{nobody} {wish} 1500{slot}"));
    }
    assert_eq!(
        text(done(since, Duration::from_secs(60), None)),
        "done@1764000000123 60000"
    );
    let reply = KeptReply::new("json [1, 2]");
    assert_eq!(
        text(done(since, Duration::from_secs(60), Some(&reply))),
        "done@1764000000123 60000 json [1, 2]"
    );
}

#[test]
fn what_is_written_is_read() {
    let locks = [LOCK.to_owned()];
    let (owner, ttl) = (OWNER, Duration::from_secs(30));
    let moment = UNIX_EPOCH + Duration::from_millis(5);
    for (sharing, slot) in [(Sharing::Alone, 0), (Sharing::Readers, 0), (PERMITS, 7)] {
        for since in [None, Some(moment)] {
            let read = kv(&claimed(&claim(&locks, sharing), slot, since));
            let read = Stored::read(&read);
            assert!(read.is_by(OWNER) && !read.is_by("019ad5b1"));
            let expected = Stored::Claimed {
                owner,
                sharing,
                ttl,
                slot,
                since,
            };
            assert_eq!(read, expected);
        }
    }
    let length = Duration::from_millis(7);
    for kept in [None, Some("json [1, 2]")] {
        let reply = kept.map(KeptReply::new);
        assert_eq!(
            Stored::read(&kv(&done(moment, length, reply.as_ref()))),
            Stored::Done {
                since: moment,
                length,
                reply: kept
            }
        );
    }
}

#[test]
fn what_is_no_lock_is_foreign() {
    for value in [
        "",
        "x",
        "x 1",
        "x 1 2 3 4",
        "x 1 2 @3 4",
        "x one 2",
        "x 3 2",
        "x 3/ 2",
        " 1 2",
        "done@x 1",
    ] {
        let found = kv(value.as_bytes());
        assert!(
            matches!(Stored::read(&found), Stored::Foreign(_)),
            "{value}"
        );
    }
    assert!(matches!(Stored::read(&kv(b"\xff 1 2")), Stored::Foreign(_)));
    let without_lease = KeyValue {
        lease: 0,
        ..kv(b"x 1 2")
    };
    assert!(matches!(Stored::read(&without_lease), Stored::Foreign(_)));
}

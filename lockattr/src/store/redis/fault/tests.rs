//! How the words of servers are sorted, in each version's form of them.

use redis::{Value, parse_redis_value};

use super::*;

fn fault(line: &str) -> Fault {
    match parse_redis_value(format!("-{line}\r\n").as_bytes()) {
        Ok(Value::ServerError(error)) => RedisError::from(error).into(),
        other => panic!("{line}: {other:?}"),
    }
}

const BARE: [&str; 10] = [
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOAUTH Authentication required.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "LOADING Redis is loading the dataset in memory",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "NOPERM this user has no permissions to access one of the keys used as arguments",
    "CROSSSLOT Keys in request don't hash to the same slot",
];

#[test]
fn what_a_script_was_told_is_what_the_server_said() {
    let call = "ERR Error running script (call to f_82cdd3d7ab6b96f9a5947917c9f163ca06cc907a)";
    for bare in BARE {
        let expected = fault(bare);
        assert!(expected.error.to_string().starts_with(bare), "{expected:?}");
        assert!(!expected.error.is_in_doubt());
        for wrapped in [
            format!("{call}: @user_script:7: @user_script: 7: -{bare} "),
            format!("{call}: @user_script:7: {bare}"),
            format!("@user_script: 12: -{bare}"),
            format!("user_script:12: @user_script: 12: -{bare}"),
        ] {
            let fault = fault(&wrapped);
            assert_eq!(
                fault.error.to_string(),
                expected.error.to_string(),
                "{wrapped}"
            );
            assert_eq!(fault.replace, expected.replace, "{wrapped}");
            assert_eq!(fault.retry, expected.retry, "{wrapped}");
            assert!(!fault.error.is_in_doubt(), "{wrapped}");
        }
    }
    for (misdirected, bare) in BARE.iter().enumerate() {
        assert_eq!(fault(bare).replace, misdirected < 4, "{bare}");
    }
}

#[test]
fn a_node_of_a_cluster_says_where_to_ask() {
    let at = |host: &str, ask| {
        let host = host.to_owned();
        let (slot, port) = (3999, 6381);
        Some(Box::new(Redirect {
            slot,
            host,
            port,
            ask,
        }))
    };
    for (said, redirect) in [
        ("MOVED 3999 127.0.0.1:6381", at("127.0.0.1", false)),
        ("ASK 3999 ::1:6381", at("::1", true)),
        ("MOVED 3999 :6381", at("", false)),
        ("MOVED nonsense", None),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            None,
        ),
    ] {
        let fault = fault(said);
        assert_eq!(fault.redirect, redirect, "{said}");
        assert!(
            !fault.error.to_string().contains("redis+cluster://"),
            "{said}"
        );
        assert!(
            fault.told().to_string().contains("redis+cluster://"),
            "{said}"
        );
    }
    let sent_on = "ERR Script attempted to access a non local key in a cluster node script: 00dd, on @user_script:1.";
    let fault = fault(sent_on);
    assert!(fault.soon && fault.error.is_in_doubt());
}

#[test]
fn what_a_script_may_not_do_says_what_is_needed() {
    let inner = "The user executing the script can't run this command or subcommand";
    for wrapped in [
        format!(
            "ERR Error running script (call to f_d3c2): @user_script:1: @user_script: 1: {inner}"
        ),
        format!("@user_script: 1: {inner}"),
        format!("ERR {inner} script: d3c21d0c2b9ca22f82737626a27bcaf5d288f99f, on @user_script:1."),
    ] {
        let told = fault(&wrapped).error.to_string();
        assert!(told.starts_with(&format!("ERR {inner}")), "{told}");
        assert!(told.ends_with(RIGHTS), "{told}");
    }
    let inner = "ACL failure in script: User jobs has no permissions to run the 'get' command";
    for place in [
        "script: a5260dd66ce02462c5b5231c727b3f7772c0bcc5, on @user_script:1.",
        "script: on @user_script:1.",
    ] {
        let told = fault(&format!("ERR {inner} {place}")).error.to_string();
        let named = inner.replace("User jobs", "this user");
        assert!(told.starts_with(&format!("ERR {named}")), "{told}");
        assert!(told.ends_with(RIGHTS), "{told}");
    }
}

#[test]
fn a_command_that_the_server_does_not_know_says_which_server_is_needed() {
    let call = "ERR Error running script (call to f_6c6a69ca11192f3d524585b5d65b8e08d2d8dcc6)";
    for said in [
        "ERR unknown command `zpopmin`, with args beginning with: `a`, ".to_owned(),
        "ERR unknown command 'zpopmin', with args beginning with: 'a' ".to_owned(),
        "ERR Unknown subcommand or wrong number of arguments for 'numsub'. Try PUBSUB HELP."
            .to_owned(),
        "ERR unknown subcommand 'numsub'. Try PUBSUB HELP.".to_owned(),
        format!(
            "{call}: @user_script:1: @user_script: 1: Unknown Redis command called from Lua script"
        ),
        "ERR Unknown Redis command called from script script: 6c6a, on @user_script:1.".to_owned(),
        "ERR Unknown Redict command called from script script: 6c6a, on @user_script:1.".to_owned(),
        "ERR Unknown command called from script script: on @user_script:1.".to_owned(),
    ] {
        let told = fault(&said).error.to_string();
        assert!(told.ends_with(NOT_WHOLE), "{told}");
    }
    for other in [
        "ERR unknown option 'zpopmin'",
        "ERR the command is not allowed here",
    ] {
        assert_eq!(fault(other).error.to_string(), other);
    }
}

#[test]
fn a_user_is_not_named() {
    for (said, told) in [
        (
            "NOPERM User billing-7 has no permissions to run the 'get' command",
            "NOPERM this user has no permissions to run the 'get' command",
        ),
        (
            "ERR ACL failure in script: User billing-7 has no permissions to run the 'get' command",
            "ERR ACL failure in script: this user has no permissions to run the 'get' command",
        ),
        (
            "NOPERM User billing-7 has no permissions to access the 'lock:a' key",
            "NOPERM this user has no permissions to access the 'lock:a' key",
        ),
    ] {
        assert_eq!(fault(said).error.to_string(), format!("{told}{RIGHTS}"));
    }
    let other = "ERR User defined function failed";
    assert_eq!(fault(other).error.to_string(), other);
}

#[test]
fn keys_that_are_refused_together_are_asked_for_in_parts() {
    for in_parts in [
        "NOPERM No permissions to access a key",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 00dd, on @user_script:1.",
        "ERR ACL failure in script: No permissions to access a key script: 00dd, on @user_script:1.",
        "ERR ACL failure in script: No permissions to access a key script: on @user_script:1.",
        "CROSSSLOT Keys in request don't hash to the same slot",
    ] {
        assert_eq!(
            fault(in_parts).retry,
            Some(RetryWith::FewerKeys),
            "{in_parts}"
        );
    }
    for whole in [
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "OOM command not allowed when used memory > 'maxmemory'.",
    ] {
        assert_eq!(fault(whole).retry, None, "{whole}");
    }
    let unknown = "NOSCRIPT No matching script. Please use EVAL.";
    assert_eq!(fault(unknown).retry, Some(RetryWith::ScriptText));
}

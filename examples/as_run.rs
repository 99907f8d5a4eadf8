//! The programs as people run them: with a private server, and where there is none.

use std::collections::BTreeSet;
use std::process::Command;

use tests::printed::{everywhere, lines};

#[test]
fn no_api_key_is_used_twice_at_a_time() {
    for lines in everywhere(env!("CARGO_BIN_EXE_api-keys")) {
        assert_eq!(lines.len(), 1 + 12, "{lines:#?}");
        for key in ["alpha", "beta", "gamma"] {
            let of_key = lines
                .iter()
                .filter(|line| line.ends_with(&format!("by key {key}")));
            assert!(of_key.count() >= 1, "{lines:#?}");
        }
    }
}

#[test]
fn each_shard_is_done_once_and_what_one_worker_cannot_another_does() {
    for lines in everywhere(env!("CARGO_BIN_EXE_shards")) {
        for shard in 0..12 {
            let done = format!("shard {shard} is done by worker ");
            let times = lines.iter().filter(|line| line.starts_with(&done)).count();
            assert_eq!(times, 1, "{shard}: {lines:#?}");
        }
        let failed = |line: &&String| line.ends_with("failed at worker 1: its disk is full");
        assert!(lines.iter().any(|line| failed(&line)), "{lines:#?}");
    }
}

#[test]
fn the_next_leads_after_the_ttl_of_a_killed_leader_and_at_once_after_one_that_stops() {
    let lines = lines(&mut Command::new(env!("CARGO_BIN_EXE_leader")));
    let leaders: Vec<_> = lines
        .iter()
        .filter(|line| line.ends_with(" leads"))
        .collect();
    assert_eq!(leaders.len(), 3, "{lines:#?}");
    assert_eq!(
        leaders.iter().collect::<BTreeSet<_>>().len(),
        3,
        "{lines:#?}"
    );
    let times: Vec<f32> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("the next leads after "))
        .map(|time| time.trim_end_matches(" s").parse().unwrap())
        .collect();
    // A ttl is two seconds, of which a killed leader has used a third at most; a wake-up takes no time.
    assert!((1.2..2.0 + 1.0 + 1.5).contains(&times[0]), "{lines:#?}");
    assert!(times[1] < 1.5, "{lines:#?}");
}

#[test]
fn no_page_is_lost_or_rendered_twice_while_a_process_is_replaced() {
    for (lines, processes) in everywhere(env!("CARGO_BIN_EXE_pipeline"))
        .into_iter()
        .zip([2, 1])
    {
        let pages = lines
            .iter()
            .filter_map(|line| line.split_once(" by process "));
        let (pages, by): (Vec<_>, BTreeSet<_>) = pages.unzip();
        let expected: BTreeSet<_> = ["letter", "report"]
            .iter()
            .flat_map(|name| (1..=12).map(move |page| format!("{name}: page {page} of 12")))
            .collect();
        assert_eq!(pages.len(), expected.len(), "{lines:#?}");
        assert_eq!(
            pages
                .into_iter()
                .map(ToOwned::to_owned)
                .collect::<BTreeSet<_>>(),
            expected
        );
        assert_eq!(by.len(), processes, "{lines:#?}");
    }
}

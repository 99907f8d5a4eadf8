//! The schedule by itself.

use std::collections::BTreeMap;

use super::*;
use crate::acquisition::QueueId;
use crate::store::relied_on_until;

const TTL: Duration = Duration::from_secs(30);

fn lease(sent: Instant) -> Arc<Acquisition> {
    Acquisition::sample(QueueId::from(0), sent, TTL, |_| {})
}

/// Each lease's first look, as the keeper has it.
fn taken(schedule: &RenewalSchedule, count: u32, now: Instant) {
    for _ in 0..count {
        let due = |share: Share| Some(now + TTL / 6 + share.of_time(TTL / 6));
        schedule.enter(lease(now), due);
    }
}

#[test]
fn ten_thousand_leases_taken_together_are_renewed_in_fifty_calls_spread_over_the_interval() {
    let (schedule, start) = (RenewalSchedule::default(), Instant::now());
    taken(&schedule, 10_000, start);
    for interval in 0..5 {
        let begin = start + TTL / 6 + TTL / 3 * interval;
        let mut calls = Vec::new();
        let mut renewed = 0;
        loop {
            let (due, _) = schedule.table().first().unwrap();
            if due >= begin + TTL / 3 {
                break;
            }
            let batch = schedule.take_due(due);
            for _ in batch.chunks(BATCH) {
                calls.push(due);
            }
            renewed += batch.len();
            for (key, lease) in batch {
                lease.runs_until(relied_on_until(due, TTL));
                schedule.renewed(key, due + TTL / 3);
            }
        }
        assert_eq!(renewed, 10_000, "interval {interval}");
        assert!(calls.len() <= 60, "{} calls", calls.len());
        // No second of the ten sees a third of them.
        let seconds = TTL.as_secs() / 3;
        for second in 0..seconds {
            let from = begin + Duration::from_secs(second);
            let until = from + Duration::from_secs(1);
            let here = calls.iter().filter(|at| (from..until).contains(*at));
            assert!(here.count() <= 20, "{calls:?}");
        }
    }
}

#[test]
fn a_few_leases_share_their_calls_as_well() {
    let (schedule, start) = (RenewalSchedule::default(), Instant::now());
    taken(&schedule, 100, start);
    let (mut calls, mut renewed) = (0, 0);
    while renewed < 100 {
        let (due, _) = schedule.table().first().unwrap();
        let batch = schedule.take_due(due);
        calls += 1;
        renewed += batch.len();
        for (key, lease) in batch {
            lease.runs_until(relied_on_until(due, TTL));
            schedule.renewed(key, due + TTL / 3);
        }
    }
    assert!(calls <= 12, "{calls} calls");
}

#[test]
fn leases_come_up_in_the_order_in_which_they_are_due() {
    let start = Instant::now();
    let mut table = ScheduleTable {
        entries: Vec::new(),
        free: NOWHERE,
        held: 0,
        heap: Vec::new(),
        planned: None,
        start,
    };
    let one = lease(start);
    let mut known: BTreeMap<u32, (u64, ScheduleKey)> = BTreeMap::new();
    let mut random = 1_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from(random >> 33).unwrap()
    };
    for _ in 0..20_000 {
        let (what, due) = (next() % 5, u64::from(next() % 1_000));
        let some = known
            .keys()
            .nth(usize::try_from(next()).unwrap() % known.len().max(1))
            .copied();
        match (what, some) {
            (0..=1, _) => {
                let key = table.enter(Arc::clone(&one));
                table.put(key.index, start + Duration::from_nanos(due));
                assert!(known.insert(key.index, (due, key)).is_none());
            }
            (2, Some(index)) => {
                table.put(index, start + Duration::from_nanos(due));
                known.get_mut(&index).unwrap().0 = due;
            }
            (_, Some(index)) => {
                let (_, key) = known.remove(&index).unwrap();
                assert!(table.leave(key).is_some());
                // Its place may be another's by now.
                assert!(table.leave(key).is_none());
            }
            _ => {}
        }
        assert_eq!(table.held, known.len());
        let first = table.first().map(|(due, _)| due.duration_since(start));
        let least = known
            .values()
            .map(|(due, _)| Duration::from_nanos(*due))
            .min();
        assert_eq!(first, least);
    }
}

/// The renewal may have asked before there was something to find out.
#[test]
fn who_is_to_be_looked_at_while_a_renewal_is_under_way_is_renewed_once_more() {
    let (schedule, now) = (RenewalSchedule::default(), Instant::now());
    let next = now + TTL / 3;
    let key = schedule.enter(lease(now), |_| Some(now));
    assert_eq!(schedule.take_due(now).len(), 1);
    schedule.look(key, now);
    assert_eq!(schedule.take_due(now).len(), 0);
    schedule.renewed(key, next);
    assert_eq!(schedule.take_due(now + AGAIN).len(), 1);
    schedule.renewed(key, next);
    assert_eq!(schedule.take_due(now + TTL / 6).len(), 0);
}

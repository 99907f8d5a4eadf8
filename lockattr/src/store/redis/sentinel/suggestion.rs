//! A misspelt name, and the one that is meant.

/// The known name that is nearest to `written`, if one is near enough to be meant.
pub(super) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = written.to_lowercase();
    let near = |name: &'a str| {
        let distance = distance(&written, &name.to_lowercase());
        (distance <= written.len().max(name.len()) / 3).then_some((distance, name))
    };
    let nearest = known.into_iter().filter_map(near);
    nearest
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Input:  `["a", "b", "c"]`
/// Output: the three in back quotes, "a, b and c"
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// The Levenshtein distance, by bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        last[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = last[j + 1];
            last[j + 1] = replaced.min(diagonal + 1).min(last[j] + 1);
        }
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name() {
        let known = ["mymaster", "queue", "cache-main"];
        for (written, meant) in [
            ("mymastr", Some("mymaster")),
            ("MyMaster", Some("mymaster")),
            ("queues", Some("queue")),
            ("cache_main", Some("cache-main")),
            ("other", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
    }
}

//! Suggestions for a misspelt name, and lists of the names that exist.

/// The known name that is nearest to `written`, if one is near enough to be meant.
///
/// Input:  `"usr_id", ["order", "user_id"]`
/// Output: `Some("user_id")`
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = fold(written);
    known
        .into_iter()
        .filter_map(|name| Some((cost(&written, &fold(name))?, name)))
        .min_by_key(|(cost, _)| *cost)
        .map(|(_, name)| name)
}

/// Input:  `["key", "ttl", "wait"]`
/// Output: the three in back quotes, "key, ttl and wait"
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// Case and separators do not count: `onBusy`, `ON_BUSY` and `on-busy` all mean `on_busy`.
fn fold(name: &str) -> Vec<char> {
    name.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}

fn cost(written: &[char], name: &[char]) -> Option<usize> {
    let longer = written.len().max(name.len());
    let allowed = match longer {
        0..=2 => 0,
        3..=5 => 1,
        _ => longer / 3,
    };
    let distance = distance(written, name);
    if distance <= allowed {
        return Some(distance);
    }
    // `user` and `id` for `user_id`: a part of the name instead of the whole. It costs more than any
    // misspelling.
    let part = written.len() >= 2 && (name.starts_with(written) || name.ends_with(written));
    part.then_some(1000 + distance)
}

/// The Damerau-Levenshtein distance (optimal string alignment) of two words.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j + 1] + 1).min(row[j] + 1);
            best = best.min(last[j] + usize::from(x != y));
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name() {
        let known = ["key", "ttl", "wait", "on_busy", "on_unavailable", "user_id"];
        for (written, meant) in [
            ("tll", Some("ttl")),
            ("TTL", Some("ttl")),
            ("onbusy", Some("on_busy")),
            ("onBusy", Some("on_busy")),
            ("on_unavailble", Some("on_unavailable")),
            ("usr_id", Some("user_id")),
            ("user", Some("user_id")),
            ("id", Some("user_id")),
            ("k", None),
            ("x", None),
            ("permits", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
    }

    #[test]
    fn a_list_reads_as_a_sentence() {
        assert_eq!(list([]), "");
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}

//! What a server says of itself: `INFO`, and some of its settings.

use std::collections::BTreeMap;

use redis::Value;

use super::told;
use crate::error::StoreError;
use crate::store::inspect::{Finding, Severity};
use crate::store::redis::reply::text;

/// What was found out about a server.
#[derive(Default)]
pub(super) struct Facts {
    /// Its address.
    pub(super) part: String,
    info: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    /// What it refused to tell, and in which words.
    pub(super) refused: Vec<(&'static str, String)>,
    pub(super) in_cluster: bool,
    /// Whether grants count once replicas have acknowledged them.
    pub(super) is_acknowledged: bool,
}

impl Facts {
    pub(super) fn read(
        part: String,
        info: Result<Value, StoreError>,
        settings: impl Iterator<Item = Result<Value, StoreError>>,
        in_cluster: bool,
        is_acknowledged: bool,
    ) -> Self {
        let mut facts = Self {
            part,
            in_cluster,
            is_acknowledged,
            ..Self::default()
        };
        match info {
            Ok(info) => facts.info = lines(&info),
            Err(error) => facts.refused.push(("+info", told(&error).0)),
        }
        let mut refused = None;
        for answer in settings {
            match answer {
                Ok(answer) => facts.settings.extend(pair(&answer)),
                Err(error) => refused = Some(("+config|get", told(&error).0)),
            }
        }
        facts.refused.extend(refused);
        facts
    }

    #[cfg(test)]
    pub(super) fn of(info: &str, settings: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            info: lines(&Value::BulkString(info.as_bytes().to_vec())),
            settings: settings.iter().map(own).collect(),
            ..Self::default()
        }
    }

    /// A line of `INFO`.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    /// The same where it is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn finding(
        &self,
        topic: &'static str,
        severity: Severity,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding::new(&self.part, topic, severity, found, advice)
    }
}

fn lines(info: &Value) -> BTreeMap<String, String> {
    let info = text(info).unwrap_or_default();
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.trim_end().to_owned());
    lines.map(own).collect()
}

/// A setting's name and value; nothing where the server has no such setting.
fn pair(answer: &Value) -> Option<(String, String)> {
    match answer {
        Value::Array(parts) => match parts.as_slice() {
            [name, value] => Some((text(name)?, text(value)?)),
            _ => None,
        },
        Value::Map(pairs) => {
            let (name, value) = pairs.first()?;
            Some((text(name)?, text(value)?))
        }
        _ => None,
    }
}

//! `lockattr doctor`: what the servers do to locks, and what to do about it.

use anstyle::{AnsiColor, Style};
use clap::Args;
use lockattr::store::inspect::{Finding, Severity};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::exit::{self, Answer, Exit};
use crate::output::Output;
use crate::words;

fn after_help() -> String {
    let codes = [Exit::USAGE, Exit::UNAVAILABLE];
    let own = [
        ("0", "nothing worse than advice"),
        ("1", "a warning: locks may be lost by what was found"),
        ("2", "a fault: locks do not work with it"),
    ];
    format!(
        "\
Nothing is changed, but for a throw-away key that is taken and given back as a client does when it connects.

Examples:
  lockattr doctor
  lockattr doctor redis+cluster://n1,n2,n3

{}",
        exit::listed(&codes, &own)
    )
}

/// Look at the servers for what harms locks: rights, settings, versions, clocks, latency
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct DoctorArgs {
    /// The store to look at, in the place of --url
    #[arg(value_name = "URL")]
    store: Option<String>,
}

pub(crate) async fn doctor(args: DoctorArgs, mut global: Global, output: Output) -> Answer {
    global.url = args.store.unwrap_or(global.url);
    let client = global.client()?;
    let findings = client.inspect()?.diagnose().await?;
    if output.json {
        Output::object(&json(&findings))?;
    } else {
        output.styled(&format!("{}\n", text(&findings)))?;
    }
    Ok(match worst(&findings) {
        Severity::Good | Severity::Unknown | Severity::Advice => Exit::OK,
        Severity::Warning => Exit::NOTHING,
        _ => Exit::FAULT,
    })
}

/// The word for how bad something is.
fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Good => "good",
        Severity::Unknown => "unknown",
        Severity::Advice => "advice",
        Severity::Warning => "warning",
        // Whatever a later library knows that is worse.
        _ => "fault",
    }
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Good => AnsiColor::Green.on_default(),
        Severity::Unknown => Style::new().dimmed(),
        Severity::Advice => AnsiColor::Cyan.on_default(),
        Severity::Warning => AnsiColor::Yellow.on_default().bold(),
        _ => AnsiColor::Red.on_default().bold(),
    }
}

/// How bad it is altogether.
fn worst(findings: &[Finding]) -> Severity {
    let severities = findings.iter().map(|finding| finding.severity);
    severities.max().unwrap_or(Severity::Good)
}

/// For people: a paragraph a server, the worst first.
fn text(findings: &[Finding]) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for finding in findings {
        if !parts.contains(&finding.part.as_str()) {
            parts.push(&finding.part);
        }
    }
    let paragraphs = parts.into_iter().map(|part| {
        let mut of_part: Vec<_> = findings
            .iter()
            .filter(|finding| finding.part == part)
            .collect();
        of_part.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let bold = Style::new().bold();
        let mut lines = Vec::new();
        if !part.is_empty() {
            lines.push(format!("{bold}{}{bold:#}", words::one_line(part)));
        }
        for finding in of_part {
            let style = style(finding.severity);
            let word = word(finding.severity);
            let found = words::one_line(&finding.found);
            lines.push(format!(
                "  {style}{word:<8}{style:#}{:<17}{found}",
                finding.topic
            ));
            if !finding.advice.is_empty() {
                lines.push(format!("  {:25}→ {}", "", words::one_line(&finding.advice)));
            }
        }
        lines.join("\n")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// For machines; `docs/schema/doctor.json` describes it.
fn json(findings: &[Finding]) -> Value {
    let each = findings.iter().map(|finding| {
        json!({
            "part": finding.part,
            "topic": finding.topic,
            "severity": word(finding.severity),
            "found": finding.found,
            "advice": (!finding.advice.is_empty()).then_some(&finding.advice),
        })
    });
    json!({ "worst": word(worst(findings)), "findings": each.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_with_its_advice() {
        let findings = [
            Finding::new("a:1", "slow commands", Severity::Good, "none", ""),
            Finding::new(
                "a:1",
                "eviction",
                Severity::Warning,
                "allkeys-lru",
                "set noeviction",
            ),
            Finding::new("", "nodes", Severity::Advice, "two nodes", "use three"),
        ];
        assert_eq!(worst(&findings), Severity::Warning);
        assert_eq!(
            anstream::adapter::strip_str(&text(&findings)).to_string(),
            "a:1\n  \
             warning eviction         allkeys-lru\n                           → set noeviction\n  \
             good    slow commands    none\n\n  \
             advice  nodes            two nodes\n                           → use three"
        );
        assert_eq!(json(&findings)["worst"], "warning");
    }
}

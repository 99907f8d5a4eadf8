//! What is written for people leads somewhere: links between files and within them, the guide's links in the crate's
//! documentation, and a row of what to do for each event and metric.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use lockattr::{Error, LossCause};
use pulldown_cmark::{BrokenLink, Event, LinkType, Options, Parser, Tag, TagEnd};

const GUIDE: &str = "lockattr/docs/guide";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the repository")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file as its readers see it.
#[derive(Default)]
struct Document {
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// Labels in `[text][label]` that the file does not define.
    undefined: Vec<String>,
    definitions: BTreeMap<String, String>,
}

impl Document {
    fn parse(text: &str) -> Self {
        let mut undefined = Vec::new();
        let broken = |link: BrokenLink<'_>| {
            let is_meant = matches!(link.link_type, LinkType::Reference | LinkType::Collapsed);
            if is_meant {
                undefined.push(link.reference.to_string());
            }
            None
        };
        let mut document = Self::default();
        let mut parser =
            Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(broken));
        let mut seen = HashMap::new();
        let mut heading: Option<String> = None;
        for event in parser.by_ref() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let before = seen.entry(anchor.clone()).or_insert(0);
                    document.anchors.insert(match before {
                        0 => anchor,
                        _ => format!("{anchor}-{before}"),
                    });
                    *before += 1;
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        for (label, definition) in parser.reference_definitions().iter() {
            let to = definition.dest.to_string();
            document.definitions.insert(label.to_owned(), to);
        }
        document.undefined = undefined;
        document
    }
}

/// The anchor of a heading, as code hosts and rustdoc have it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

/// Files for people, by their path in the repository. Those in `src` are parts of others, or have rustdoc's links.
fn documents() -> BTreeMap<PathBuf, Document> {
    let mut documents = BTreeMap::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            if path.is_dir() {
                if !matches!(name, "target" | "src" | "node_modules") && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(root()).expect("it is below");
                documents.insert(path.to_owned(), Document::parse(&text));
            }
        }
    }
    documents
}

/// The pages of the guide, by the names of their modules.
fn pages() -> BTreeMap<String, Document> {
    let pages = documents().into_iter().filter_map(|(path, document)| {
        let name = path.strip_prefix(GUIDE).ok()?.file_stem()?.to_str()?;
        (name != "README").then(|| (name.to_owned(), document))
    });
    pages.collect()
}

/// A path without its `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn links_within_the_repository_lead_somewhere() {
    let documents = documents();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (path, document) in &documents {
        let mut complain = |what: String| wrong.push(format!("{}: {what}", path.display()));
        for label in &document.undefined {
            complain(format!("[{label}] is not defined"));
        }
        for link in &document.links {
            if link.contains("://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => plain(&path.with_file_name("").join(file)),
            };
            if !root().join(&target).exists() {
                complain(format!("{link}: there is no such file"));
            } else if !anchor.is_empty()
                && !documents
                    .get(&target)
                    .is_some_and(|target| target.anchors.contains(anchor))
            {
                complain(format!("{link}: there is no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 100, "only {followed} links were found");
}

/// `struct.Lease.html#method.token` is `Lease::token`.
fn item_at(url: &str) -> String {
    let parts = url.split(['/', '#']).map(|part| {
        let part = part.trim_end_matches(".html");
        part.split_once('.').map_or(part, |(_, name)| name)
    });
    parts.collect::<Vec<_>>().join("::")
}

#[test]
fn links_of_the_guide_lead_to_the_same_places_in_the_documentation() {
    let pages = pages();
    let shown = Document::parse(&read("lockattr/src/guide/links.md")).definitions;
    let mut named = BTreeSet::new();
    for (page, document) in &pages {
        for (label, to) in &document.definitions {
            named.insert(label.clone());
            let expected = match to.strip_prefix("https://docs.rs/lockattr/latest/lockattr/") {
                None => format!("crate::guide::{}", to.replace(".md", "")),
                Some(url) => format!("crate::{}", item_at(url)),
            };
            assert_eq!(
                shown.get(label),
                Some(&expected),
                "{page}.md has `[{label}]: {to}`, and lockattr/src/guide/links.md needs `[{label}]: {expected}`"
            );
        }
    }
    let unused: Vec<_> = shown
        .keys()
        .filter(|label| !named.contains(*label))
        .collect();
    assert!(
        unused.is_empty(),
        "links.md defines what no page names: {unused:?}"
    );
}

#[test]
fn each_page_of_the_guide_is_shown_and_listed() {
    let source = read("lockattr/src/guide.rs");
    let (_, list) = source.split_once("pages! {").expect("the list of modules");
    let modules: BTreeSet<_> = list
        .split_whitespace()
        .take_while(|word| *word != "}")
        .collect();
    let pages = pages();
    let names: BTreeSet<_> = pages.keys().map(String::as_str).collect();
    assert_eq!(modules, names);
    let listed = Document::parse(&read(&format!("{GUIDE}/README.md"))).links;
    for page in pages.keys() {
        assert!(listed.contains(&format!("{page}.md")), "{page}");
        assert!(source.contains(&format!("]({page})")), "{page}");
    }
}

#[test]
fn each_event_and_metric_has_a_row_that_says_what_to_do() {
    let rows = read(&format!("{GUIDE}/troubleshooting.md"));
    for (_, message) in tests::log::documented() {
        assert!(rows.contains(&format!("| {message} |")), "{message}");
    }
    let documentation = read("lockattr/src/lib.rs");
    let metrics = documentation.lines().filter_map(|line| {
        let name = line.strip_prefix("//! | `lockattr_")?.split('`').next()?;
        Some(format!("`lockattr_{name}`"))
    });
    let metrics: Vec<_> = metrics.collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    for metric in metrics {
        assert!(rows.contains(&format!("| {metric} |")), "{metric}");
    }
}

#[test]
fn each_loss_and_a_missing_client_have_a_row_with_their_words() {
    let rows = read(&format!("{GUIDE}/troubleshooting.md"));
    let losses = [
        LossCause::Expired,
        LossCause::Deleted,
        LossCause::Taken,
        LossCause::Shutdown,
        LossCause::HeldTooLong,
    ];
    for cause in losses {
        let row = rows
            .lines()
            .find(|row| row.contains(&format!("`{cause:?}`")));
        let row = row.unwrap_or_else(|| panic!("no row has `{cause:?}`"));
        assert!(row.contains(&cause.to_string()), "{row}");
    }
    for error in [Error::NotInstalled, Error::AlreadyInstalled] {
        let text = error.to_string();
        let (before_advice, _) = text.split_once(':').expect("advice");
        assert!(rows.contains(&format!("| {before_advice}")), "{text}");
    }
}

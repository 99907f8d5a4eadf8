//! One key on a server, on a cluster, and by a quorum.

use tests::cluster::Cluster;
use tests::server::Server;

use super::{Effort, alternate, at_most, cell, label, ratio, words};
use crate::arena::pin;
use crate::child::{Child, FIRST};
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{LOCKATTR, MAJORITY, RAW, REDLOCK, RSLOCK, Subject};

/// Where locks are.
struct Topology {
    name: String,
    url: String,
    /// The servers that stand still while time is taken.
    frozen: Vec<Server>,
    /// The others.
    servers: Vec<Server>,
    subjects: Vec<Subject>,
    /// What time is compared with.
    bare: Subject,
}

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "One key in each topology",
        "all servers and the client on core 0",
        "One task takes a free key and gives it back; time per pair. Of a quorum, the raw commands ask all \
         nodes at once and go on when a majority has answered, which is as fast as it can be. A frozen node \
         (SIGSTOP) stops when the client has warmed up.",
    );
    let (present, absent) = peers::present(&[LOCKATTR, RAW, MAJORITY, RSLOCK, REDLOCK]);
    section.remarks = absent;
    let of = |wanted: &[Subject]| -> Vec<Subject> {
        let is_wanted = |subject: &&Subject| wanted.iter().any(|one| one.id == subject.id);
        present.iter().filter(is_wanted).copied().collect()
    };
    let columns = [
        "topology",
        "library",
        "time per pair",
        "× raw commands",
        "× one server",
    ];
    let mut table = Table::new("", &columns);
    let mut one_server = None;

    let server = started();
    let single = Topology {
        name: "one server".to_owned(),
        url: server.url(),
        frozen: Vec::new(),
        servers: vec![server],
        subjects: of(&[LOCKATTR, RAW]),
        bare: RAW,
    };
    compare(&mut section, &mut table, &single, effort, &mut one_server);

    let cluster = Cluster::with(3, 0, &["--maxclients", "4000"]);
    cluster.nodes().iter().for_each(|node| pin(node, FIRST));
    let of_cluster = Topology {
        name: "cluster of 3".to_owned(),
        url: cluster.url(),
        frozen: Vec::new(),
        servers: Vec::new(),
        subjects: of(&[LOCKATTR]),
        bare: RAW,
    };
    compare(
        &mut section,
        &mut table,
        &of_cluster,
        effort,
        &mut one_server,
    );
    drop(cluster);

    for (nodes, still) in [(3, 0), (3, 1), (5, 0), (5, 2)] {
        let mut servers: Vec<Server> = (0..nodes).map(|_| started()).collect();
        let hosts: Vec<_> = servers
            .iter()
            .map(|server| server.address().to_string())
            .collect();
        let frozen = servers.split_off(nodes - still);
        let how = if still > 0 {
            format!(", {still} frozen")
        } else {
            String::new()
        };
        let quorum = Topology {
            name: format!("quorum of {nodes}{how}"),
            url: format!("redis+quorum://{}", hosts.join(",")),
            frozen,
            servers,
            subjects: of(&[LOCKATTR, MAJORITY, RSLOCK, REDLOCK]),
            bare: MAJORITY,
        };
        compare(&mut section, &mut table, &quorum, effort, &mut one_server);
    }
    section.tables.push(table);
    section
}

fn started() -> Server {
    let server = Server::start();
    pin(&server, FIRST);
    server
}

/// All libraries on one topology. What the library takes on one server is kept for the others.
fn compare(
    section: &mut Section,
    table: &mut Table,
    topology: &Topology,
    effort: Effort,
    one_server: &mut Option<Vec<f64>>,
) {
    let subjects = &topology.subjects;
    let words = words(&[&effort.pick(300, 150)]);
    let mut measured = Vec::new();
    let times = alternate(subjects, effort.rounds(), |subject| {
        // Who waits a second for each answer of a frozen node is measured once.
        let is_peer = ![LOCKATTR.id, RAW.id, MAJORITY.id].contains(&subject.id);
        if is_peer && !topology.frozen.is_empty() && measured.contains(&subject.id) {
            return None;
        }
        measured.push(subject.id);
        once(topology, subject, &words)
    });
    let of = |id| {
        let at = subjects.iter().position(|subject| subject.id == id);
        at.map_or(&[][..], |at| &times[at])
    };
    let bare = of(topology.bare.id);
    for (subject, times) in subjects.iter().zip(&times) {
        let is_ours = subject.id == LOCKATTR.id;
        let on_one = one_server.as_deref().filter(|_| is_ours);
        table.row(vec![
            topology.name.clone(),
            label(*subject),
            cell(Spread::of(times), Spread::time),
            cell(ratio(times, bare), number::digits),
            cell(on_one.and_then(|one| ratio(times, one)), number::digits),
        ]);
        if is_ours && !bare.is_empty() && topology.bare.id == MAJORITY.id {
            section.aim(
                &format!("{}: at most 1.3 × the raw commands", topology.name),
                at_most(ratio(times, bare), 1.3, "×"),
            );
        }
    }
    let ours = of(LOCKATTR.id);
    if one_server.is_none() {
        *one_server = Some(ours.to_vec());
    } else if topology.bare.id == RAW.id {
        let one = one_server.as_deref().unwrap_or_default();
        section.aim(
            &format!("{}: at most 1.2 × one server", topology.name),
            at_most(ratio(ours, one), 1.2, "×"),
        );
    }
}

fn once(topology: &Topology, subject: Subject, words: &[String]) -> Option<f64> {
    for server in &topology.servers {
        server.ask::<()>("FLUSHALL");
    }
    let mut child = Child::start(subject, "pair", &topology.url, words, FIRST)?;
    topology.frozen.iter().for_each(Server::freeze);
    child.go("");
    let findings = child.finish();
    topology.frozen.iter().for_each(Server::thaw);
    findings.map(|findings| findings.one("time"))
}

//! Machines that can be cut off from each other: a network namespace each, on one bridge.
//!
//! Connections stand while a machine is cut off, and nothing arrives, as where a switch fails. To make networks
//! takes the rights of root, and the program `ip` of iproute2.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// Machines on one network, which this process reaches too; gone when dropped.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    subnet: [u8; 3],
    machines: usize,
}

static NETWORKS: AtomicU8 = AtomicU8::new(0);

impl Network {
    /// Makes so many machines; nothing where this process may not.
    pub fn of(machines: usize) -> Option<Self> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let [low, high, ..] = process.to_le_bytes();
        let network = Self {
            bridge: format!("lat{process}-{number}"),
            // A part of 10.0.0.0/8 for each network of each process.
            subnet: [10, 128 + high % 64 + 64 * (number % 2), low],
            machines,
        };
        network.make().then_some(network)
    }

    fn make(&self) -> bool {
        let bridge = &self.bridge;
        let mut made = ip(&format!("link add {bridge} type bridge"))
            && ip(&format!("addr add {}/24 dev {bridge}", self.host(1)))
            && ip(&format!("link set {bridge} up"));
        for machine in 0..self.machines {
            let (name, cable) = (self.name(machine), format!("{bridge}{machine}"));
            let address = self.address(machine);
            made = made
                && ip(&format!("netns add {name}"))
                && ip(&format!(
                    "link add {cable} type veth peer name eth0 netns {name}"
                ))
                && ip(&format!("link set {cable} master {bridge} up"))
                && ip(&format!("-n {name} addr add {address}/24 dev eth0"))
                && ip(&format!("-n {name} link set eth0 up"))
                && ip(&format!("-n {name} link set lo up"));
        }
        made
    }

    fn name(&self, machine: usize) -> String {
        format!("{}m{machine}", self.bridge)
    }

    fn host(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, number)
    }

    /// Where a machine is reached, by the others and by this process.
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        let number = u8::try_from(machine + 2).expect("few machines");
        self.host(number)
    }

    /// A command that starts a program on a machine, in a process of the same number.
    pub fn command(&self, machine: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine), program]);
        command
    }

    /// Cuts a machine off from the others. This process still reaches it.
    pub fn cut_off(&self, machine: usize) {
        self.route(machine, "add");
    }

    /// Ends [`cut_off`](Self::cut_off).
    pub fn rejoin(&self, machine: usize) {
        self.route(machine, "del");
    }

    fn route(&self, machine: usize, what: &str) {
        for other in (0..self.machines).filter(|other| *other != machine) {
            let (name, address) = (self.name(machine), self.address(other));
            let done = ip(&format!("-n {name} route {what} blackhole {address}/32"));
            assert!(done, "a route of a network that is there");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in 0..self.machines {
            ip(&format!("netns del {}", self.name(machine)));
        }
        ip(&format!("link del {}", self.bridge));
    }
}

/// Whether it was done.
fn ip(words: &str) -> bool {
    let command = Command::new("ip")
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status();
    command.is_ok_and(|status| status.success())
}

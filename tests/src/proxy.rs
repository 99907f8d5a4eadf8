//! A TCP proxy that injects faults into connections while they are in use.
//!
//! It runs on threads of its own, so that a test that blocks its runtime does not stop it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// A direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// What happens to bytes that come by from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// They pass.
    Pass,
    /// They pass this much later, in order.
    Delay(Duration),
    /// They are lost, and so is everything after them in this direction of the connection, as on a
    /// real network: TCP never delivers what follows a gap. Other connections are not touched.
    Swallow,
}

/// A proxy before a server; ends its connections when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    over: AtomicBool,
    accepted: AtomicUsize,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    requests: Treatment,
    replies: Treatment,
    refusing: bool,
    swallows_subscriptions: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// A proxy that passes everything on to `target`.
    pub fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the proxy");
        let port = listener.local_addr().expect("a bound port");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                target,
                requests: Treatment::Pass,
                replies: Treatment::Pass,
                refusing: false,
                swallows_subscriptions: false,
                open: Vec::new(),
            }),
            over: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// The URL to give to the client.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.port)
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.port
    }

    /// Changes how one direction is treated, on connections that exist and on new ones.
    pub fn treat(&self, way: Way, treatment: Treatment) {
        let mut state = self.shared.state();
        match way {
            Way::Requests => state.requests = treatment,
            Way::Replies => state.replies = treatment,
        }
    }

    /// Makes a black hole: connections stand, and nothing passes in either direction.
    pub fn swallow_all(&self) {
        self.treat(Way::Requests, Treatment::Swallow);
        self.treat(Way::Replies, Treatment::Swallow);
    }

    /// Makes a black hole of every connection on which the client subscribes or has subscribed to
    /// channels. The others pass.
    pub fn swallow_subscriptions(&self) {
        self.shared.state().swallows_subscriptions = true;
    }

    /// Passes everything again. What was swallowed stays lost, with its connection.
    pub fn heal(&self) {
        self.treat(Way::Requests, Treatment::Pass);
        self.treat(Way::Replies, Treatment::Pass);
        let mut state = self.shared.state();
        state.refusing = false;
        state.swallows_subscriptions = false;
    }

    /// Closes every connection. New ones are taken.
    pub fn cut(&self) {
        for stream in self.shared.state().open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Closes every connection, and each new one at once, until [`Proxy::heal`].
    pub fn refuse(&self) {
        self.shared.state().refusing = true;
        self.cut();
    }

    /// Leads new connections to another server. Those that exist stay where they are.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// How many connections came in so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    fn treatment(&self, way: Way) -> Treatment {
        let state = self.state();
        match way {
            Way::Requests => state.requests,
            Way::Replies => state.replies,
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let (target, refusing) = {
            let state = shared.state();
            (state.target, state.refusing)
        };
        if !refusing {
            // Where the server is not there the client sees its connection close.
            drop(join(client, target, shared));
        }
    }
}

/// Starts the threads of one connection.
fn join(client: TcpStream, target: SocketAddr, shared: &Arc<Shared>) -> std::io::Result<()> {
    let server = TcpStream::connect_timeout(&target, Duration::from_secs(1))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let mut state = shared.state();
        state.open.push(client.try_clone()?);
        state.open.push(server.try_clone()?);
    }
    let listens = Arc::default();
    carry(
        Way::Requests,
        client.try_clone()?,
        server.try_clone()?,
        shared,
        &listens,
    );
    carry(Way::Replies, server, client, shared, &listens);
    Ok(())
}

fn carry(
    way: Way,
    from: TcpStream,
    to: TcpStream,
    shared: &Arc<Shared>,
    listens: &Arc<AtomicBool>,
) {
    let (sender, receiver) = channel();
    let (shared, listens) = (Arc::clone(shared), Arc::clone(listens));
    thread::spawn(move || read(way, from, &sender, &shared, &listens));
    thread::spawn(move || write(to, &receiver));
}

fn read(
    way: Way,
    mut from: TcpStream,
    to: &Sender<(Instant, Vec<u8>)>,
    shared: &Shared,
    listens: &AtomicBool,
) {
    let mut buffer = [0; 16 * 1024];
    let mut lost = false;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if way == Way::Requests && subscribes(&buffer[..length]) {
            listens.store(true, Ordering::SeqCst);
        }
        lost |= shared.state().swallows_subscriptions && listens.load(Ordering::SeqCst);
        let mut due = Instant::now();
        match shared.treatment(way) {
            Treatment::Pass => {}
            Treatment::Delay(time) => due += time,
            Treatment::Swallow => lost = true,
        }
        if !lost && to.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

/// Whether these bytes ask for a subscription. They are sent in one piece, being few.
fn subscribes(bytes: &[u8]) -> bool {
    let word = b"SUBSCRIBE\r\n";
    bytes
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn write(mut to: TcpStream, from: &Receiver<(Instant, Vec<u8>)>) {
    for (due, bytes) in from {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

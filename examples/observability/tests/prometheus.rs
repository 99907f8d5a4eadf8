//! The program as Prometheus sees it: every panel of the dashboard has data, every rule is in order, and
//! the alerts of what goes wrong in it fire.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Only a failure takes as long.
const LONG: Duration = Duration::from_secs(90);

/// Ended when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let started = command.stderr(Stdio::null()).spawn();
    Running(started.unwrap_or_else(|error| panic!("{command:?} does not start: {error}")))
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// `promtool` comes with Prometheus.
fn promtool(arguments: &[&str]) -> Output {
    let mut command = Command::new("promtool");
    command.current_dir(folder()).args(arguments);
    let output = command.output();
    output.expect("promtool is in the PATH (apt-get install prometheus)")
}

fn assert_good(arguments: &[&str]) {
    let Output {
        status,
        stdout,
        stderr,
    } = promtool(arguments);
    assert!(
        status.success(),
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
}

struct Prometheus {
    url: String,
    _program: Running,
    _server: Running,
    data: PathBuf,
}

impl Prometheus {
    /// Scrapes the program twice a second.
    fn start() -> Self {
        let (program_at, server_at) = (free_port(), free_port());
        let mut program = Command::new(env!("CARGO_BIN_EXE_observability"));
        program.env_remove("REDIS_URL");
        let program = start(program.arg(format!("127.0.0.1:{program_at}")));

        let data = std::env::temp_dir().join(format!("lockattr-prometheus-{server_at}"));
        fs::create_dir_all(&data).unwrap();
        let config = fs::read_to_string(folder().join("prometheus.yml")).unwrap();
        let rules = folder().join("alerts.yml");
        let config = config
            .replace("5s", "500ms")
            .replace("alerts.yml", rules.to_str().unwrap())
            .replace("127.0.0.1:9464", &format!("127.0.0.1:{program_at}"));
        fs::write(data.join("prometheus.yml"), config).unwrap();
        let mut server = Command::new("prometheus");
        server
            .arg(format!("--config.file={}/prometheus.yml", data.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{server_at}"));
        Self {
            url: format!("http://127.0.0.1:{server_at}"),
            _program: program,
            _server: start(&mut server),
            data,
        }
    }

    /// What a query answers, a line a sample; or the error.
    fn query(&self, expr: &str) -> Result<String, String> {
        let output = promtool(&["query", "instant", &self.url, expr]);
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    fn wait_for(&self, expr: &str) -> String {
        let until = Instant::now() + LONG;
        loop {
            let answer = self.query(expr);
            match &answer {
                Ok(samples) if !samples.is_empty() => return samples.clone(),
                _ if Instant::now() > until => panic!("{expr}: {answer:?}"),
                _ => sleep(Duration::from_millis(300)),
            }
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.data);
    }
}

/// The queries of a dashboard, with everything chosen, over a few scrapes.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let panels = dashboard["panels"].as_array().unwrap();
    let of_panel = |panel: &Value| {
        let title = text(&panel["title"]);
        let targets = panel["targets"].as_array().unwrap().clone();
        targets.into_iter().map(move |target| {
            let expr = text(&target["expr"])
                .replace("$function", ".*")
                .replace("$template", ".*")
                .replace("$__rate_interval", "10s");
            (title.clone(), expr)
        })
    };
    panels.iter().flat_map(of_panel).collect()
}

#[test]
fn rules_are_in_order_and_fire_when_they_should() {
    assert_good(&["check", "config", "prometheus.yml"]);
    assert_good(&["check", "rules", "alerts.yml"]);
    assert_good(&["test", "rules", "alerts_test.yml"]);
}

#[test]
fn every_panel_has_data_and_what_goes_wrong_is_told() {
    let dashboard = fs::read_to_string(folder().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let prometheus = Prometheus::start();
    // Twice, so that there is a rate.
    prometheus.wait_for("sum(increase(lockattr_acquired_total[10s])) > 0");
    for (title, expr) in queries(&dashboard) {
        let samples = prometheus.wait_for(&expr);
        assert!(
            !samples.contains("NaN") || samples.lines().any(|line| !line.contains("NaN")),
            "{title}: {samples}"
        );
    }
    // The operator of the program ends locks that are in use, and its report is too slow for its ttl.
    let lost = prometheus.wait_for(r#"ALERTS{alertname="LockLost", alertstate="firing"}"#);
    assert!(lost.contains(r#"cause="deleted""#), "{lost}");
    assert!(lost.contains(r#"template="import:<file>""#), "{lost}");
    let near = prometheus.wait_for(r#"ALERTS{alertname="LockNearlyExpired", alertstate="firing"}"#);
    assert!(
        near.contains(r#"function="observability::jobs::report""#),
        "{near}"
    );
    // What is well in it is not told.
    let wrong = prometheus.query(r#"ALERTS{alertname=~"LockedJob.*|LockWorkMayRunTwice"}"#);
    assert_eq!(wrong, Ok(String::new()));
}

#[test]
fn the_program_ends_at_an_interrupt_and_gives_everything_back() {
    let at = free_port();
    let mut program = Command::new(env!("CARGO_BIN_EXE_observability"));
    let mut program = start(
        program
            .env_remove("REDIS_URL")
            .arg(format!("127.0.0.1:{at}")),
    );
    let until = Instant::now() + LONG;
    while std::net::TcpStream::connect(("127.0.0.1", at)).is_err() {
        assert!(Instant::now() < until, "it does not listen");
        sleep(Duration::from_millis(50));
    }
    let pid = i32::try_from(program.0.id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    assert!(program.0.wait().unwrap().success());
}

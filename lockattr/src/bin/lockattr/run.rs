//! `lockattr run`: a command that runs under a lease.
//!
//! Two processes share the work. This one holds the lease, takes the signals and talks to the store. The
//! [`guard`] is the parent of the command, ends it and all that it has started, and knows until when it
//! may run: it does that also where this process is killed, stopped or frozen. Each sees the other's end.

use std::pin::pin;
use std::time::Duration;

use lockattr::{Client, Error, Lease, LossCause};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::cli::{Global, RunArgs};
use crate::exit::{Answer, Exit, Failure};

mod bounds;
mod clock;
mod family;
pub(crate) mod guard;
mod message;
mod signals;
mod terminal;
mod warden;

use bounds::Bounds;
use message::{FromGuard, ToGuard, Why};
use signals::Signals;
use warden::Warden;

pub(crate) async fn run(args: &RunArgs, global: &Global) -> Answer {
    if global.url == "memory:" {
        return Err(Failure::new(
            Exit::USAGE,
            "`memory:` keeps locks in one process, and `lockattr run` is one for each command: name a server with \
             --url or LOCKATTR_URL",
        ));
    }
    let Some(key) = args.key.to_str() else {
        let shown = args.key.to_string_lossy();
        return Err(Failure::new(
            Exit::DATA,
            format!("no lock key: `{shown}` is not UTF-8"),
        ));
    };
    if let (Some(min), Some(max)) = (args.min_hold, args.max_hold)
        && min > max
    {
        return Err(Failure::new(
            Exit::USAGE,
            format!("--min-hold {min:?} is longer than --max-hold {max:?}"),
        ));
    }
    terminal::let_background_write();
    // Before anything is asked for, so that none ends this process with a key in its hands.
    let mut signals = Signals::listen()?;
    let client = global.client()?;
    let lease = tokio::select! {
        lease = request(&client, key, args).acquire() => lease,
        signal = signals.that_ends() => {
            client.shutdown().await;
            return Ok(Exit::of_signal(signal));
        }
    };
    let lease = lease.map_err(|error| refused(error, args))?;
    let answer = match Warden::start(args, &lease).await {
        Ok(warden) => supervise(warden, &lease, args, &mut signals).await,
        Err(failure) => Err(failure),
    };
    let answer = give_back(lease, answer).await;
    tokio::select! {
        () = client.shutdown() => {}
        _ = signals.that_ends() => {}
    }
    let ended = answer?;
    if ended.is_interrupted {
        // A shell goes on with its loop or script otherwise, as if the command had seen to Ctrl-C itself.
        signals::die_of_interrupt();
    }
    Ok(Exit(ended.status))
}

/// How a command has ended that was not ended here.
struct Ended {
    status: u8,
    is_interrupted: bool,
}

fn request(client: &Client, key: &str, args: &RunArgs) -> lockattr::LockRequest {
    let mut request = client
        .lock(key)
        .ttl(args.ttl)
        .wait(args.wait)
        .permits(args.permits)
        .weight(args.weight);
    if args.shared {
        request = request.shared();
    }
    if let Some(length) = args.once {
        request = request.once(length);
    }
    if let Some(length) = args.min_hold {
        request = request.min_hold(length);
    }
    request
}

/// The command does not run.
fn refused(error: Error, args: &RunArgs) -> Failure {
    let was_waited_for = matches!(error, Error::Busy { .. }) && !args.wait.is_zero();
    let is_skip = matches!(error, Error::Busy { .. } | Error::Done { .. });
    let failure = Failure::from(error);
    if !is_skip {
        return failure;
    }
    let failure = if was_waited_for {
        failure.with_exit(Exit::WAITED)
    } else {
        failure
    };
    match args.skip_code {
        Some(0) => failure.with_exit(Exit::OK).silent(),
        _ if args.quiet => {
            let exit = args.skip_code.map_or(failure.exit, Exit);
            failure.with_exit(exit).silent()
        }
        Some(code) => failure.with_exit(Exit(code)),
        None => failure,
    }
}

/// Sees the command through to its end, whoever brings that about.
async fn supervise(
    mut warden: Warden,
    lease: &Lease,
    args: &RunArgs,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let bounds = Bounds::new(args);
    let mut looks = interval(bounds.look_every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lost = pin!(lease.lost());
    let mut time_is_over = pin!(after(args.max_hold));
    // Why the command is ended, and when the guard is late with that.
    let mut ending: Option<(Failure, Instant)> = None;
    let mut is_lost = false;
    loop {
        let overdue = ending.as_ref().map(|(_, overdue)| *overdue);
        tokio::select! {
            // What the guard says counts before what is known here.
            biased;
            said = warden.says() => match said {
                Some(FromGuard::Stopped) => signals::stop(),
                Some(FromGuard::Ended { status, why }) => {
                    return match ending {
                        Some((cause, _)) => Err(cause),
                        None if why == Why::AtDeadline => Err(not_renewed(lease)),
                        None => Ok(Ended { status, is_interrupted: why == Why::Interrupted }),
                    };
                }
                None => {
                    warden.end_all();
                    return Err(Failure::new(
                        Exit::INTERNAL,
                        "the process that guards the command was killed, and the command with it",
                    ));
                }
            },
            error = &mut lost, if ending.is_none() => {
                if let Error::Lost { cause: LossCause::Expired, .. } = error {
                    // The guard would have ended the command before, if it were not frozen.
                    warden.end_all();
                    return Err(ended(&error));
                }
                is_lost = true;
                let grace = bounds.grace_after_loss;
                warden.tell(ToGuard::End { grace });
                ending = Some((ended(&error), Instant::now() + grace + bounds::SLACK));
            }
            () = &mut time_is_over, if ending.is_none() => {
                warden.tell(ToGuard::End { grace: args.grace });
                let why = Failure::new(
                    Exit::LOST,
                    format!("`{}` was held for as long as --max-hold allows: the command was ended", lease.key()),
                );
                ending = Some((why, Instant::now() + args.grace + bounds::SLACK));
            }
            () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                warden.end_all();
                return Err(ending.expect("it is overdue").0);
            }
            signal = signals.next() => warden.tell(ToGuard::Signal(signal)),
            // What is left of a lost lease is nothing, which would leave no grace.
            _ = looks.tick(), if !is_lost => warden.tell(bounds.until(lease)),
        }
    }
}

async fn after(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

fn ended(error: &Error) -> Failure {
    Failure::new(Exit::LOST, format!("{error}: the command was ended"))
}

fn not_renewed(lease: &Lease) -> Failure {
    let key = lease.key();
    Failure::new(
        Exit::LOST,
        format!("`{key}` could not be renewed: the command was ended before another can hold it"),
    )
}

/// Gives the key back; a success that the lease did not last for is a loss.
async fn give_back(lease: Lease, answer: Result<Ended, Failure>) -> Result<Ended, Failure> {
    let is_success = matches!(answer, Ok(Ended { status: 0, .. }));
    if is_success {
        lease.mark_done();
    }
    match lease.release().await {
        Err(error @ Error::Lost { .. }) if is_success => Err(Failure::new(
            Exit::LOST,
            format!("{error}: the command had ended"),
        )),
        // What could not be asked was told by the library, and is tried again until the process ends.
        _ => answer,
    }
}

//! A process that takes a lease up which another one has handed off.

use std::sync::mpsc::Receiver;

use lockattr::Client;

use super::say;

/// Takes up what the first order is the text of, says its token, and gives it back at the next order.
pub(super) async fn play(locks: &Client, orders: &Receiver<String>) {
    say("ready", &"");
    let text = orders.recv().expect("a text");
    match locks.take_up(&text).await {
        Ok(lease) => {
            say("token", &lease.token().await.ok());
            orders.recv().expect("the word to go on");
            say("released", &lease.release().await.is_ok());
        }
        Err(error) => say("error", &error.to_string()),
    }
}

/// Takes a key, hands it off, says the text, and lives on until it is killed.
pub(super) async fn hand_off(locks: &Client, orders: &Receiver<String>) {
    let lease = locks.lock("heritage").acquire().await.expect("free");
    let token = lease.token().await.expect("held");
    println!("token Some({token})");
    let text = lease.hand_off().expect("the only handle");
    println!("text {text}");
    drop(orders.recv());
}

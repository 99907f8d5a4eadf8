//! Values that cannot stand in a list of keys.
use std::collections::HashMap;

use lockattr::{Error, distributed_lock};

struct Row;

#[distributed_lock(key = ["row:<rows>"])]
async fn elements_without_display(rows: &[Row]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = ["table", "row:<row>"])]
async fn neither(row: Row) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = ["row:<rows>"])]
async fn pairs(rows: HashMap<u8, u8>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "row:<ids>")]
async fn without_brackets(ids: &[u8]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = ["row:<ids>"])]
async fn used_up(ids: impl Iterator<Item = u8> + Send) -> Result<(), Error> {
    Ok(())
}

fn main() {}

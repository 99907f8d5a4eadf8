//! A placeholder that names nothing.
use lockattr::distributed_lock;

#[distributed_lock(key = "sync:<usr_id>")]
async fn misspelt(user_id: u64, region: String) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:<tenant>:<other>")]
async fn two_unknown(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:<user_id>")]
async fn no_arguments() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:<self.id>")]
async fn no_receiver(id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

struct Service {
    tenant: u64,
}

impl Service {
    #[distributed_lock(key = "sync:<tenant>")]
    async fn field_of_self(&self) -> Result<(), lockattr::Error> {
        Ok(())
    }
}

fn main() {}

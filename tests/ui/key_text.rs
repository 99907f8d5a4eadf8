//! Literal text that a key cannot have.
use lockattr::distributed_lock;

#[distributed_lock(key = "")]
async fn empty() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "   ")]
async fn blank() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync\tnightly")]
async fn control() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = r#"say "<nam>""#)]
async fn raw_string(name: String) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "caf\u{e9}:<nam>")]
async fn escapes(name: String) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "every-night-at-three-in-the-morning-when-nobody-looks:<nam>:for-the-whole-of-the-company")]
async fn long(name: String) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}

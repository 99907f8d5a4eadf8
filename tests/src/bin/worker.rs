//! A process of the tests' own; see [`tests::roles`].

fn main() {
    tests::roles::play();
}

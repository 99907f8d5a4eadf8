//! The program as people run it, with and without a server.

use tests::printed;

#[test]
fn a_second_call_for_the_same_account_is_aborted() {
    for lines in printed::everywhere(env!("CARGO_BIN_EXE_with-tonic")) {
        let mut answers = lines[1..].to_vec();
        answers.sort_unstable();
        let aborted = "account 7: Aborted, another call holds the lock that this one needs";
        let expected = ["account 7: 7 rows", aborted, "account 8: 7 rows"];
        assert_eq!(answers, expected);
    }
}

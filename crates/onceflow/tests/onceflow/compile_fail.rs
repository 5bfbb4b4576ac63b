//! Wrong code does not compile, and the messages tell the user what to do. After a change that should alter the
//! messages, run with `TRYBUILD=overwrite` and read the difference.

#[test]
fn mistakes_are_refused_with_words_that_help() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

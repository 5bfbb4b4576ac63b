//! Every target on all there is to begin with, and on some inputs that a seed makes of it. `ONCEFLOW_LONG=1` tries a hundred
//! times as many.

use onceflow_fuzz::{
    drive::{Budget, attempt, drive},
    targets,
};

fn hold(target: &str, runs: u64) {
    let target = targets::find(target).expect("a target of this name");
    let times = if std::env::var_os("ONCEFLOW_LONG").is_some() { 100 } else { 1 };
    match drive(target, 1, Budget::Runs(runs * times), |_| {}) {
        Ok(tally) => assert!(tally.runs >= runs && tally.classes > 1, "{tally:?}"),
        Err(failure) => panic!("{}\nthe input: {:?}", failure.message, failure.input.escape_ascii().to_string()),
    }
}

#[test]
fn any_flow_file_loads_or_is_refused_with_its_place() {
    hold("flow", 800);
}

#[test]
fn any_expression_gives_the_same_twice_or_is_refused_with_its_column() {
    hold("expr", 4000);
}

#[test]
fn a_damaged_journal_is_refused_or_shows_a_past_state() {
    hold("journal", 300);
}

#[test]
fn any_bytes_on_the_socket_leave_other_guests_served_and_the_server_stoppable() {
    hold("socket", 1000);
}

#[test]
fn any_bytes_are_refused_as_a_block_or_have_the_records_of_their_header() {
    hold("block", 4000);
}

#[test]
fn any_bytes_of_a_client_are_taken_as_answered_and_the_next_client_is_served() {
    hold("ingest", 150);
}

#[test]
fn backends_answer_any_batch_as_the_model_does() {
    hold("batches", 400);
}

#[test]
fn the_same_seed_tries_the_same_inputs() {
    let inputs = |seed| {
        let mut inputs = vec![];
        let target = targets::find("expr").expect("a target of this name");
        drive(target, seed, Budget::Runs(200), |input| inputs.push(input.to_vec())).expect("no promise is broken");
        inputs
    };
    assert_eq!(inputs(5), inputs(5));
    assert_ne!(inputs(5), inputs(6));
}

#[test]
fn every_target_has_inputs_written_by_hand_that_hold() {
    for target in &targets::TARGETS {
        let corpus = onceflow_fuzz::corpus::of(target.name);
        assert!(corpus.len() >= 3, "{} has {} inputs", target.name, corpus.len());
        for (name, input) in corpus {
            attempt(target, &input).unwrap_or_else(|message| panic!("{}/{name}: {message}", target.name));
        }
    }
}

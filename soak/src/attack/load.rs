//! Runs of three steps, four at a time, on one directory, without any fault: every step starts exactly once.

use crate::{
    Deadline, Findings,
    bed::{Bed, said},
};
use onceflow_store::testing::random::Random;
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

const AT_A_TIME: usize = 4;

/// Every step appends a line when it starts. The second must not start twice in every other flow.
fn flow(effect: &str) -> String {
    let step = |name: &str, effect: &str, reads: &str| {
        format!(
            "  {name}:\n    effect: {effect}\n    run: printf '%s {name}\\n' \"$ONCEFLOW_KEY\" >> ${{{{ inputs.starts }}}}; cat {reads} > ${{{{ out.o }}}}\n    out: {{ o: {{ file: {name}.txt }} }}\n"
        )
    };
    format!(
        "flow: load\ninputs: {{ starts: text }}\nsteps:\n{}{}{}outputs: {{ end: c.o }}\n",
        step("a", "idempotent", "/dev/null"),
        step("b", effect, "${{ a.o }}"),
        step("c", "idempotent", "${{ b.o }}"),
    )
}

pub(crate) fn attack(bed: &Bed, deadline: Deadline, _random: &mut Random) -> anyhow::Result<Findings> {
    bed.write("idempotent.yaml", flow("idempotent"))?;
    bed.write("at_most_once.yaml", flow("at_most_once"))?;
    let starts = bed.write("starts", "")?;
    let input = format!("starts={}", starts.display());
    let (next, wrong) = (AtomicU64::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while !deadline.is_over() {
                    let number = next.fetch_add(1, SeqCst);
                    let file = if number % 2 == 0 { "idempotent.yaml" } else { "at_most_once.yaml" };
                    let (key, out) = (format!("k{number}"), format!("out/{number}"));
                    let args = ["run", file, "-i", &input, "--key", &key, "--store", "st", "--out", &out, "-q"];
                    let problem = match bed.run(&args) {
                        Ok(output) if output.status.success() => continue,
                        Ok(output) => said(&output),
                        Err(error) => error.to_string(),
                    };
                    wrong.lock().expect("no thread panics").push(format!("run {key} ({file}): {problem}"));
                }
            });
        }
    });
    let runs = next.load(SeqCst);
    let mut found = Findings { wrong: wrong.into_inner().expect("no thread panics"), ..Findings::default() };
    let mut counts = BTreeMap::<String, u64>::new();
    for line in fs::read_to_string(&starts)?.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    if !twice.is_empty() {
        found.wrong.push(format!(
            "{} of {} steps started more than once, such as {:?}",
            twice.len(),
            counts.len(),
            twice[0]
        ));
    }
    if found.wrong.is_empty() && counts.len() as u64 != 3 * runs {
        found.wrong.push(format!("{} steps of {} runs started; three each were expected", counts.len(), runs));
    }
    found.count("runs", runs);
    found.count("steps", counts.len() as u64);
    Ok(found)
}

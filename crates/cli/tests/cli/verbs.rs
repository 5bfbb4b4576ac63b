//! The verbs that inspect and resume runs, on a real store, by the real command.

use crate::support;

mod asked;
mod cleaning;
mod moves;
mod previewing;
mod records;
mod resolving;
mod retrying;
mod sending;
mod settings;
mod shared;
mod sources;
mod telling;
mod truth;

use support::Bed;

/// A flow `sum` of three steps: `x` reads input `a`, `y` reads `b`, `z` reads both and fails unless a file `ok` exists.
/// Each appends its name to `ran`, so that the test knows which ran.
pub(crate) fn three(bed: &Bed, keep: &str) -> std::path::PathBuf {
    let (ran, ok) = (bed.path("ran"), bed.path("ok"));
    let (ran, ok) = (ran.display(), ok.display());
    bed.write(
        "sum.yaml",
        &format!(
            "flow: sum\n{keep}inputs: {{ a: text, b: text }}\nsteps:\n  x:\n    run: echo x >> {ran}; echo x ${{{{ inputs.a }}}}\n    \
             out: {{ said: text }}\n  y:\n    run: echo y >> {ran}; echo y ${{{{ inputs.b }}}}\n    out: {{ said: text }}\n  z:\n    \
             run: echo z >> {ran}; test -e {ok}; echo ${{{{ x.said }}}} ${{{{ y.said }}}} > ${{{{ out.file }}}}\n    \
             out: {{ file: {{ file: z.txt }} }}\noutputs: {{ z: z.file, x: x.said }}\n"
        ),
    )
}

/// Returns the steps that ran since the last call, sorted by name.
pub(crate) fn ran(bed: &Bed) -> String {
    let text = std::fs::read_to_string(bed.path("ran")).unwrap_or_default();
    let _gone = std::fs::remove_file(bed.path("ran"));
    let mut steps: Vec<_> = text.lines().collect();
    steps.sort_unstable();
    steps.join(" ")
}

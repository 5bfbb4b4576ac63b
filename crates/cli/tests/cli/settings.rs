//! Settings: their precedence, and the errors for wrong ones.

use crate::support;

use expect_test::expect;
use support::{Bed, Said};

const FLOW: &str = "flow: f\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n";

/// Runs the command with these variables.
fn with(bed: &Bed, env: &[(&str, &str)], args: &[&str]) -> Said {
    bed.said(bed.command(args).envs(env.iter().copied()).output().expect("the command starts"))
}

#[test]
fn a_flag_is_over_the_environment_over_files_over_defaults() {
    let bed = Bed::new();
    let jobs = |env: &[(&str, &str)], args: &[&str]| {
        let said = with(&bed, env, &[&["config", "--json"], args].concat()).ends(0).json();
        format!("{} {}", said["out"]["value"], said["color"]["value"])
    };
    assert_eq!(jobs(&[], &[]), r#""results" "auto""#);
    bed.write("config/onceflow/onceflow.toml", "color = \"never\"\nout = \"users\"\n");
    assert_eq!(jobs(&[], &[]).replace(&bed.path("config/onceflow").display().to_string(), "~"), r#""~/users" "never""#);
    bed.write("onceflow.toml", "out = 'here'\n[profile.ci]\nout = 'ci'\n[profile.other]\nout = 'no'\n");
    let here = bed.dir.path().canonicalize().expect("a directory").display().to_string();
    let jobs = |env: &[(&str, &str)], args: &[&str]| jobs(env, args).replace(&here, ".");
    assert_eq!(jobs(&[], &[]), r#""./here" "never""#);
    assert_eq!(jobs(&[], &["--profile", "ci"]), r#""./ci" "never""#);
    assert_eq!(jobs(&[("ONCEFLOW_PROFILE", "ci")], &[]), r#""./ci" "never""#);
    assert_eq!(jobs(&[("ONCEFLOW_OUT", "var")], &["--profile", "ci"]), r#""var" "never""#);
    assert_eq!(jobs(&[("ONCEFLOW_COLOR", "auto")], &["--color", "always"]), r#""./here" "always""#);
}

#[test]
fn config_says_where_each_value_comes_from() {
    let bed = Bed::new();
    bed.write(
        "onceflow.toml",
        "jobs = 3\n\n[retention]\nhistory = \"1h30m\"\nkeep_max = \"2w\"\n\n[profile.ci.worker]\nmemory = \"2GiB\"\nlabels = [\"gpu\"]\n",
    );
    let said = with(
        &bed,
        &[("ONCEFLOW_WORKER_CPUS", "1.5")],
        &["config", "--origin", "--profile", "ci", "--quiet", "--store", "redis://me:hunter2@db"],
    );
    said.ends(0).expect(expect![[r#"
        -- stdout
        store = "redis://db:6379/0"      # --store
        out = "results"                  # default
        results_mode = "copy"            # default
        store_inputs = false             # default
        # shared_paths: none             # default
        jobs = 3                         # [dir]/onceflow.toml:1
        color = "auto"                   # default
        quiet = true                     # --quiet

        [retention]
        keep = "0"                       # default
        history = "1h30m"                # [dir]/onceflow.toml:4
        keep_max = "14d"                 # [dir]/onceflow.toml:5
        # history_max: no bound          # default
        # bytes_max: no bound            # default

        [worker]
        labels = ["gpu"]                 # [dir]/onceflow.toml:9, profile ci
        cpus = 1.5                       # ONCEFLOW_WORKER_CPUS
        memory = "2GiB"                  # [dir]/onceflow.toml:8, profile ci
        lease = "30s"                    # default
        -- exit 0
    "#]]);
    bed.run(&["config"]).expect(expect![[r#"
        -- stdout
        # store: the nearest .onceflow upwards, else one here
        out = "results"
        results_mode = "copy"
        store_inputs = false
        # shared_paths: none
        jobs = 3
        color = "auto"
        quiet = false

        [retention]
        keep = "0"
        history = "1h30m"
        keep_max = "14d"
        # history_max: no bound
        # bytes_max: no bound

        [worker]
        # labels: none
        # cpus: the processors there are
        # memory: no bound
        lease = "30s"
        -- stderr
        read [dir]/onceflow.toml
        next: `onceflow config --origin` says where each comes from
        -- exit 0
    "#]]);
}

#[test]
fn all_that_is_wrong_with_a_file_is_said_with_its_place() {
    let bed = Bed::new();
    bed.write(
        "onceflow.toml",
        "job = 3\ncolor = \"pink\"\nworker = 5\n[retention]\nhystory = \"30d\"\nkeep = 7\n[profile.ci]\njobs = 0\n[profile.ci.worker]\nmem = \"2GB\"\nmemory = \"2gb\"\n",
    );
    bed.run(&["ls"]).expect(expect![[r#"
        -- stderr
        error[OF0441]: there is no setting `job`
          --> [dir]/onceflow.toml:1:1
           |  job = 3
           |  ^^^
        hint: did you mean `jobs`?

        error[OF0441]: `color` cannot be this: colour is "auto", "always" or "never"
          --> [dir]/onceflow.toml:2:9
           |  color = "pink"
           |          ^^^^^^

        error[OF0441]: `worker` is a table
          --> [dir]/onceflow.toml:3:10
           |  worker = 5
           |           ^
        hint: [worker]

        error[OF0441]: there is no setting `retention.hystory`
          --> [dir]/onceflow.toml:5:1
           |  hystory = "30d"
           |  ^^^^^^^
        hint: did you mean `history`?

        error[OF0441]: `retention.keep` cannot be this: a time is a number and a unit: "500ms", "30s", "10m", "12h", "7d", "2w", or "0"
          --> [dir]/onceflow.toml:6:8
           |  keep = 7
           |         ^

        error[OF0441]: `jobs` cannot be this: steps at a time are a whole number from 1 to 65535
          --> [dir]/onceflow.toml:8:8
           |  jobs = 0
           |         ^

        error[OF0441]: there is no setting `profile.ci.worker.mem`
          --> [dir]/onceflow.toml:10:1
           |  mem = "2GB"
           |  ^^^
        hint: there is `labels`, `cpus`, `memory`, `lease`

        error[OF0441]: `worker.memory` cannot be this: a size is a number and a unit: "512MiB", "2GB"
          --> [dir]/onceflow.toml:11:10
           |  memory = "2gb"
           |           ^^^^^
        -- exit 2
    "#]]);
    let data = bed.run(&["config", "--json"]).ends(2).json();
    assert_eq!(data["error"]["problems"][0]["line"], 1);
    bed.run(&["version"]).ends(0);
    bed.run(&["error", "OF0441"]).ends(0);
    bed.write("onceflow.toml", "jobs = \n");
    let said = bed.run(&["ls"]).ends(2);
    assert!(said.stderr.starts_with("error[OF0441]: ") && said.stderr.contains("onceflow.toml:1:"), "{}", said.stderr);
}

#[test]
fn wrong_variables_and_profiles_are_told() {
    let bed = Bed::new();
    with(&bed, &[("ONCEFLOW_JOBS", "many"), ("ONCEFLOW_RETENTION_KEEP", "soon")], &["ls"]).expect(expect![[r#"
        -- stderr
        error[OF0441]: ONCEFLOW_JOBS cannot be this: steps at a time are a whole number from 1 to 65535

        error[OF0441]: ONCEFLOW_RETENTION_KEEP cannot be this: a time is a number and a unit: "500ms", "30s", "10m", "12h", "7d", "2w", or "0"
        -- exit 2
    "#]]);
    with(&bed, &[("ONCEFLOW_JOB", "3")], &["ls"]).expect(expect![[r#"
        -- stderr
        warning: ONCEFLOW_JOB is no setting; did you mean ONCEFLOW_JOBS?
        no runs here yet
        next: `onceflow init` writes a small flow, `onceflow run FLOW.yaml` runs it
        -- exit 0
    "#]]);
    bed.run(&["ls", "--profile", "ci"]).expect(expect![[r#"
        -- stderr
        error[OF0441]: there is no profile `ci`
        hint: no onceflow.toml has a table [profile.NAME]
        -- exit 2
    "#]]);
    bed.write("onceflow.toml", "[profile.ci]\njobs = 1\n");
    bed.run(&["ls", "--profile", "cj"]).expect(expect![[r#"
        -- stderr
        error[OF0441]: there is no profile `cj`
        hint: did you mean `ci`?
        -- exit 2
    "#]]);
    with(&bed, &[("ONCEFLOW_KEY_OF_A_STEP", "x")], &["ls", "--profile", "ci"]).ends(0);
}

#[test]
fn settings_are_what_commands_go_by() {
    let bed = Bed::new();
    bed.write("flow.yaml", FLOW);
    bed.write("sub/flow.yaml", FLOW);
    bed.write(
        "onceflow.toml",
        "store = 'state'\nout = 'given'\n[retention]\nhistory = '1h'\nkeep = '10m'\nkeep_max = '5m'\n",
    );
    bed.run(&["run", "sub/flow.yaml"]).ends(0);
    assert!(bed.path("state").is_dir() && !bed.path(".onceflow").exists());
    let shown = bed.run(&["show", "--json"]).ends(0).json();
    assert_eq!((&shown["keep_ms"], &shown["history_ms"]), (&300_000.into(), &3_600_000.into()));
    bed.run(&["run", "flow.yaml", "--key", "b", "--keep", "1m", "--history", "2h"]).ends(0);
    let shown = bed.run(&["show", "b", "--json"]).ends(0).json();
    assert_eq!((&shown["keep_ms"], &shown["history_ms"]), (&60_000.into(), &7_200_000.into()));
    let said = bed.run(&["run", "flow.yaml", "--key", "c", "--keep", "1h"]).ends(0);
    assert!(said.stderr.contains("warning: keep is 5m 0s here, not 1h 0m: retention.keep_max"), "{}", said.stderr);
    let said = with(&bed, &[("ONCEFLOW_QUIET", "true")], &["run", "flow.yaml", "--key", "d"]).ends(0);
    assert!(said.stderr.is_empty(), "{}", said.stderr);
}

#[test]
fn the_schema_in_the_documentation_is_this_one_and_takes_what_we_take() {
    let bed = Bed::new();
    let text = bed.run(&["config", "--schema"]).ends(0).stdout;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "docs/config.schema.json is old: UPDATE_EXPECT=1 writes it anew");
    let schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let good = serde_json::json!({
        "store": "redis://db", "jobs": 4, "color": "never", "retention": {"keep": "1h30m", "history": 0},
        "worker": {"labels": ["gpu"], "cpus": 1.5, "memory": "2GiB"}, "profile": {"ci": {"worker": {"lease": "5s"}}},
    });
    assert!(validator.is_valid(&good));
    for bad in [
        serde_json::json!({"job": 1}),
        serde_json::json!({"jobs": 0}),
        serde_json::json!({"retention": {"keep": "soon"}}),
        serde_json::json!({"profile": {"ci": {"profile": {}}}}),
        serde_json::json!({"worker": {"memory": 5}}),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
    let page = include_str!("../../../../docs/book/src/configuration.md");
    for (name, _) in bed.run(&["config", "--json"]).ends(0).json().as_object().expect("settings") {
        assert!(page.contains(&format!("| `{name}` |")), "docs/book/src/configuration.md does not say: {name}");
    }
}

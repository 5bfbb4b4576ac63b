//! Tests of the flow file from outside: files that load, the graphs they become, and the problems reported.

mod spec {
    mod docs;
    mod examples;
    mod graphs;
    mod inputs;
    mod mutated;
    mod same_as_rust;
    mod schema;
    pub(crate) mod support;
    mod versions;
    mod wrong_leaves;
    mod wrong_names;
    mod wrong_shapes;
    mod wrong_streams;
    mod wrong_text;
    mod wrong_values;
}

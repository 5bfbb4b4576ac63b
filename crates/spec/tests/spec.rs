//! The flow file, from outside: what loads, what it becomes, and what is said about what is wrong.

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
    mod wrong_text;
    mod wrong_values;
}

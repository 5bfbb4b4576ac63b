//! The flow file, from outside: what loads, what it becomes, and what is said about what is wrong.

mod spec {
    mod examples;
    mod graphs;
    mod wrong_names;
    mod wrong_shapes;
    mod wrong_text;
    mod wrong_values;
    pub(crate) mod support;
}

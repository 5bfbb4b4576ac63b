//! The executor of HTTP calls. Every call carries the step's key, so that a server can deduplicate retries.

mod request;
mod response;

pub(crate) use request::encode;

use crate::{
    ExecutorContext,
    action::{Action, Http},
    codes,
    expr::Bindings,
    job::{self, Secrets, masked},
};
use onceflow_core::model::TaskSpec;
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};
use reqwest::{Client, StatusCode};
use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The executor that calls servers.
pub(crate) struct HttpCalls {
    pub(crate) shared: Arc<ExecutorContext>,
    client: OnceLock<Client>,
}

/// The time to connect to a server. The time to answer is bounded by the step's timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl HttpCalls {
    pub(crate) fn new(shared: Arc<ExecutorContext>) -> Self {
        HttpCalls { shared, client: OnceLock::new() }
    }

    /// Returns the one client of all calls, so that connections are reused.
    fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        // Fails if the embedding program has already installed a provider, which works as well.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let built = Client::builder()
            .user_agent(concat!("onceflow/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect is returned as an answer: only the flow decides which server gets the call and its secrets.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = built.map_err(|error| {
            let mut failed = codes::failure(codes::HTTP_TRANSPORT, format!("no HTTP client: {}", chain(&error)));
            failed.not_done = true;
            failed
        })?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl Body for HttpCalls {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let (shared, client) = (self.shared.clone(), self.client());
        Attempt::Async(Box::pin(async move { run(&shared, client?, &step, inputs).await }))
    }
}

impl HttpCalls {
    /// Makes the call of a step.
    pub(crate) async fn run(&self, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
        run(&self.shared, self.client()?, step, inputs).await
    }
}

async fn run(shared: &ExecutorContext, client: Client, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Http(http) = action else { return Err(crate::not_for("http")) };
    let secrets = Secrets::read(&http.secrets)?;
    let given = attempt(shared, &client, (step, spec), inputs, &http, &secrets).await;
    given.map_err(|failure| masked(failure, &secrets.mask()))
}

async fn attempt(
    shared: &ExecutorContext,
    client: &Client,
    (step, spec): (&Step, &TaskSpec),
    inputs: Vec<Data>,
    http: &Http,
    secrets: &Secrets,
) -> Result<Vec<Data>, Failure> {
    let mut scope = job::scope(step, spec);
    for (at, data) in inputs.into_iter().enumerate() {
        scope.bind(&spec.inputs[at].name, job::input(spec, at, data)?);
    }
    let request = {
        let mut with_secrets: Bindings = scope.clone();
        with_secrets.set("secrets", secrets.value());
        request::build(client, http, &with_secrets, &step.key())?
    };
    let what = format!("{} {}", request.method(), request.url());
    let answer = client.execute(request).await.map_err(|error| unreached(&what, &error))?;
    let status = answer.status();
    let is_good = http.accept.iter().any(|range| (range.from..=range.to).contains(&status.as_u16()));
    if !is_good {
        let begins = response::beginning(answer).await;
        return Err(refused(&what, status, &begins));
    }
    response::outputs(shared, (step, spec), http, &what, answer, &scope).await
}

/// Makes the failure of a call that the server did not answer.
pub(crate) fn unreached(what: &str, error: &reqwest::Error) -> Failure {
    let failed = codes::failure(codes::HTTP_TRANSPORT, format!("{what} got no answer"));
    let mut failed = codes::because(failed, chain(error));
    // Without a connection nothing was sent, so the call had no effect.
    failed.not_done = error.is_connect() || error.is_builder();
    failed.is_final = error.is_builder();
    failed
}

/// Lists the causes of an error; the error itself only repeats the address.
fn chain(error: &dyn Error) -> String {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    match causes.is_empty() {
        true => error.to_string(),
        false => causes.join(": "),
    }
}

/// Makes the failure of a call whose answer has a status outside the accepted ones.
fn refused(what: &str, status: StatusCode, begins: &str) -> Failure {
    let mut failed = codes::failure(codes::HTTP_STATUS, format!("{what} was answered with {status}"));
    if !begins.is_empty() {
        failed.causes.push(format!("the answer begins with:\n{begins}"));
    }
    let may_pass = matches!(status.as_u16(), 408 | 425 | 429);
    failed.is_final = status.is_client_error() && !may_pass;
    failed
}

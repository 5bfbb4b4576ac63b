//! `onceflow explain FLOW`: what `run` would do, and why, before it does anything.

use crate::{
    args, asked::Asked, codes, exit::Exit, fault::Fault, place::Place, plan, printer::Printer, session::Session, story,
};
use serde_json::json;

/// Says what would run.
pub(crate) async fn run(args: &args::Explain, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let (asked, mut hints) = Asked::read(&args.flow, &place.directory, place.who())?;
    asked.say_unused(printer);
    let (explanation, refused) = if place.is_there && !args.flow.new {
        let session = Session::open(place).await?;
        let engine = session.idle().await?;
        let explanation = engine.explain(asked.start.clone()).await?;
        let refused = engine.refusal(asked.start.clone()).await?.map(Fault::from);
        engine.stop();
        hints.save();
        session.close().await?;
        (explanation, refused)
    } else {
        (anew(&asked)?, None)
    };
    if printer.json {
        let mut data = plan::to_json(asked.key(), &explanation);
        if let Some(refused) = &refused {
            data["refused"] = json!({"code": refused.code, "message": refused.message, "hint": refused.hint});
        }
        printer.pretty(&data);
    } else {
        printer.text(plan::tree(printer, &explanation, args.all));
    }
    if let Some(refused) = &refused {
        printer.tell(format!("`run` would refuse this: {refused}"));
        printer.next(format!("onceflow error {}", refused.code.unwrap_or(codes::ENDED)));
        return Ok(Exit::Done);
    }
    printer.next(match plan::Counts::of(&explanation).run {
        0 => String::from("nothing would run; `onceflow run` shows the results"),
        _ => story::command(&args.flow, None),
    });
    Ok(Exit::Done)
}

/// Without a store, or as if nothing was in it.
fn anew(asked: &Asked) -> Result<onceflow_core::plan::Explanation, Fault> {
    use onceflow_core::plan::{Explanation, Fate, Reason, explain::all_done};
    let start = &asked.start;
    let program = onceflow_core::model::check(&start.library, &start.flow, start.outputs.as_deref());
    let program = program.map_err(|errors| Fault::from(onceflow_engine::Error::from(errors)))?;
    let mut lines = all_done(&program).lines;
    for line in &mut lines {
        (line.fate, line.reason) = (Fate::Run, Reason::NoValue);
    }
    Ok(Explanation { lines })
}

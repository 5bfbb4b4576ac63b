//! `onceflow error [CODE]`: the page of a code, or all codes.

use crate::{args, codes, exit::Exit, fault::Fault, pages, printer::Printer};
use serde_json::json;

/// Prints a page, or the list of pages.
pub(crate) fn run(args: &args::Error, printer: &Printer) -> Result<Exit, Fault> {
    let Some(code) = &args.code else {
        list(printer);
        return Ok(Exit::Done);
    };
    let Some((code, page)) = pages::find(code) else {
        return Err(Fault::new(Exit::Usage, codes::NO_CODE, format!("there is no error code `{code}`"))
            .hint("`onceflow error` lists all codes"));
    };
    match printer.json {
        true => printer.data(&json!({"code": code, "title": pages::title(page), "page": page})),
        false => printer.text(page),
    }
    Ok(Exit::Done)
}

fn list(printer: &Printer) {
    if printer.json {
        let all = pages::PAGES.iter().map(|(code, page)| json!({"code": code, "title": pages::title(page)}));
        printer.data(&all.collect::<Vec<_>>());
        return;
    }
    let line = |(code, page): &(&str, &str)| format!("{code}  {}\n", pages::title(page));
    printer.text(pages::PAGES.iter().map(line).collect::<String>());
    printer.next("`onceflow error CODE` prints the page of a code");
}

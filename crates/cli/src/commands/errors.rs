//! `detent errors …`

use crate::args::Errors;
use crate::{exit, output};
use detent_protocol::{Code, Fault};
use serde_json::json;

pub(crate) fn run(command: &Errors) -> Result<u8, Fault> {
    match command {
        Errors::List => {
            for code in Code::ALL {
                if output::is_json() {
                    output::json(&object(*code));
                } else {
                    output::line(format!("{:<24} {}", code.as_str(), code.what()));
                }
            }
        }
        Errors::Show { code } => {
            let known = Code::parse(&code.to_uppercase());
            let code = known.ok_or_else(|| {
                output::refuse(code, "no such code; `detent errors list` shows all")
            })?;
            if output::is_json() {
                output::json(&object(code));
            } else {
                output::line(code.page().trim_end());
            }
        }
    }
    Ok(exit::OK)
}

fn object(code: Code) -> serde_json::Value {
    json!({"code": code, "what": code.what(), "cause": code.cause(), "next": code.next(),
        "retryable": code.retryable()})
}

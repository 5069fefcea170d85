//! Reads a chat completion.
//!
//! Promises: the plan and what it cost, or a fault that says what is wrong with the
//! answer. Must never know: how it came.

use super::extract::one_object;
use crate::playbook::PLAN_BYTES_MAX;
use detent_protocol::json::size_bytes;
use detent_protocol::messages::PlanAnswer;
use detent_protocol::{Code, Fault};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Usage {
    fn total(&self) -> Option<u64> {
        let parts = self.prompt_tokens.zip(self.completion_tokens);
        let sum = parts.map(|(p, c)| p.saturating_add(c));
        self.total_tokens.or(sum)
    }
}

fn malformed(message: impl Into<String>, at: &str) -> Fault {
    Fault::new(Code::ModelMalformed, message).at(at)
}

/// The plan in a completion's `body`, for a prompt of `prompt_bytes`.
pub(crate) fn read(body: &[u8], prompt_bytes: usize) -> Result<PlanAnswer, Fault> {
    let completion: Completion = serde_json::from_slice(body).map_err(|e| {
        let at = format!("line {} column {}", e.line(), e.column());
        malformed("the endpoint's answer is not a chat completion", &at)
    })?;
    let Some(choice) = completion.choices.first() else {
        return Err(malformed("the answer has no choices", "/choices"));
    };
    let plan = plan_of(choice)?;
    let bytes = size_bytes(&plan);
    if bytes > PLAN_BYTES_MAX {
        let message = format!("a plan of {bytes} bytes; at most {PLAN_BYTES_MAX}");
        return Err(malformed(message, "/content"));
    }
    let counted = completion.usage.as_ref().and_then(Usage::total);
    // Without a count: about three bytes of JSON make a token.
    let guess = prompt_bytes.saturating_add(bytes) / 3;
    Ok(PlanAnswer {
        plan,
        tokens: counted.unwrap_or(u64::try_from(guess).unwrap_or(u64::MAX)),
        trusted: false,
    })
}

fn plan_of(choice: &Choice) -> Result<Value, Fault> {
    const REASON: &str = "/choices/0/finish_reason";
    match choice.finish_reason.as_deref() {
        Some("length") => {
            let message = "the answer was cut off at its token limit; \
                           a shorter plan, or a larger tokens_max, is needed";
            return Err(malformed(message, REASON));
        }
        Some("content_filter") => {
            return Err(malformed(
                "the endpoint's filter held the answer back",
                REASON,
            ));
        }
        _ => {}
    }
    if choice
        .message
        .refusal
        .as_deref()
        .is_some_and(|r| !r.is_empty())
    {
        let message = "the model refused to answer";
        return Err(malformed(message, "/choices/0/message/refusal"));
    }
    one_object(choice.message.content.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn completion(choice: Value, usage: Value) -> Vec<u8> {
        serde_json::to_vec(&json!({"choices": [choice], "usage": usage})).unwrap()
    }
    fn said(content: &str) -> Value {
        json!({"message": {"content": content}, "finish_reason": "stop"})
    }

    #[test]
    fn tokens_come_from_usage_or_from_the_size() {
        for (usage, tokens) in [
            (
                json!({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}),
                12,
            ),
            (json!({"prompt_tokens": 7, "completion_tokens": 5}), 12),
            (json!({"prompt_tokens": 7}), 101),
            (json!(null), 101),
        ] {
            let answer = read(&completion(said("{\"a\":1}"), usage.clone()), 297).unwrap();
            assert_eq!(answer.tokens, tokens, "{usage}");
            assert!(!answer.trusted);
        }
    }

    #[test]
    fn answers_without_a_plan_are_malformed_and_placed() {
        let refusal = json!({"message": {"content": null, "refusal": "I can't"}});
        let filtered = json!({"message": {"content": "{}"}, "finish_reason": "content_filter"});
        let cut = json!({"message": {"content": "{\"steps\":["}, "finish_reason": "length"});
        for (body, says) in [
            (b"<html>busy</html>".to_vec(), "not a chat completion"),
            (b"{\"choices\":[]}".to_vec(), "no choices"),
            (completion(refusal, json!(null)), "refused"),
            (completion(filtered, json!(null)), "filter"),
            (completion(cut, json!(null)), "cut off"),
            (completion(said(""), json!(null)), "empty"),
            (completion(json!({"message": {}}), json!(null)), "empty"),
        ] {
            let fault = read(&body, 1).unwrap_err();
            assert_eq!(fault.code, Code::ModelMalformed);
            assert!(fault.message.contains(says), "{fault}");
            assert!(fault.at.is_some(), "{fault}");
        }
    }

    #[test]
    fn a_plan_that_no_message_could_carry_is_refused() {
        let large = json!({"x": "y".repeat(PLAN_BYTES_MAX)}).to_string();
        let fault = read(&completion(said(&large), json!(null)), 1).unwrap_err();
        assert_eq!(fault.code, Code::ModelMalformed);
    }
}

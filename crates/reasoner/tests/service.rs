//! The reasoner on a bus: requests in, answers or faults out, until it is stopped.
#![allow(missing_docs)]

mod common;

use common::{KEY, ModelServer, bus, config, key_file, plan, request};
use detent_bus::{Bus, BusError, call};
use detent_protocol::messages::{PlanAnswer, PlanRequest};
use detent_protocol::redact::Redactor;
use detent_protocol::{Code, Fault, envelope, subject};
use detent_reasoner::{OpenaiConfig, ProviderConfig, Reasoner, ReasonerError, ReasonerOptions};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

async fn ask(bus: &Bus, provider: &str, request: &PlanRequest) -> Result<PlanAnswer, Fault> {
    let subject = subject::reason(provider);
    call(bus.messages.as_ref(), &subject, request, PATIENCE).await
}

fn with(name: &str, config: OpenaiConfig) -> ReasonerOptions {
    let providers = BTreeMap::from([(name.to_owned(), ProviderConfig::Openai(config))]);
    ReasonerOptions {
        providers,
        ..ReasonerOptions::default()
    }
}

#[tokio::test]
async fn it_serves_every_provider_until_it_is_stopped() {
    let bus = bus();
    let server = ModelServer::start();
    let options = with("big", config(server.base_url(), "good:"));
    let reasoner = Reasoner::spawn(options, bus.bus.clone(), None)
        .await
        .unwrap();
    let answer = ask(&bus.bus, "playbook", &request()).await.unwrap();
    assert_eq!((answer.tokens, answer.trusted), (0, true));
    assert_eq!(answer.plan, plan());
    let answer = ask(&bus.bus, "big", &request()).await.unwrap();
    assert!(!answer.trusted && answer.tokens > 0);
    let fault = ask(&bus.bus, "ghost", &request()).await.unwrap_err();
    assert_eq!(fault.code, Code::ModelUnavailable);
    assert!(fault.message.contains("big, playbook"), "{fault}");

    reasoner.stop().await;
    let payload = envelope::seal(&request()).unwrap();
    let subject = subject::reason("playbook");
    let refused = bus.bus.messages.request(&subject, payload, PATIENCE).await;
    assert!(
        matches!(refused, Err(BusError::NoResponders(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn junk_is_answered_with_a_fault() {
    let bus = bus();
    let options = ReasonerOptions::default();
    let _reasoner = Reasoner::spawn(options, bus.bus.clone(), None)
        .await
        .unwrap();
    for junk in [&b""[..], b"junk", &[0xc1], &[0x91; 10_000]] {
        let subject = subject::reason("playbook");
        let answer = bus
            .bus
            .messages
            .request(&subject, junk.to_vec().into(), PATIENCE);
        let reply = envelope::read_reply::<PlanAnswer>(&answer.await.unwrap());
        assert_eq!(reply.unwrap_err().code, Code::InputInvalid);
    }
    ask(&bus.bus, "playbook", &request()).await.unwrap();
}

#[tokio::test]
async fn a_missing_key_is_told_at_the_start() {
    let bus = bus();
    let missing = OpenaiConfig {
        api_key_env: Some("DETENT_TEST_KEY_NEVER_SET".into()),
        ..config("http://127.0.0.1:9/v1".into(), "m")
    };
    let started = Reasoner::spawn(with("big", missing), bus.bus.clone(), None).await;
    let Err(ReasonerError::Config(fault)) = started else {
        panic!("it started");
    };
    assert_eq!(fault.code, Code::ConfigInvalid);
    assert_eq!(fault.at.as_deref(), Some("reasoners.big.api_key_env"));
    assert!(fault.message.contains("DETENT_TEST_KEY_NEVER_SET"));
    let fault = ask(&bus.bus, "playbook", &request()).await.unwrap_err();
    assert_eq!(fault.code, Code::NodeUnreachable, "nothing was left behind");
}

#[tokio::test]
async fn what_can_not_work_does_not_start() {
    let bus = bus();
    let good = || config("http://127.0.0.1:9/v1".into(), "m");
    let none_at_once = ReasonerOptions {
        concurrency_max: 0,
        ..ReasonerOptions::default()
    };
    let url = OpenaiConfig {
        base_url: "nowhere".into(),
        ..good()
    };
    for options in [
        with("playbook", good()),
        with("a.b", good()),
        with("big", url),
        none_at_once,
    ] {
        let started = Reasoner::spawn(options, bus.bus.clone(), None).await;
        let fault = Fault::from(started.err().unwrap());
        assert_eq!(fault.code, Code::ConfigInvalid);
    }
}

/// A node knows further secrets beside a provider's own key.
#[tokio::test]
async fn secrets_that_the_node_knows_do_not_leave_in_an_answer() {
    let bus = bus();
    let file = key_file();
    let provider = ProviderConfig::Openai(OpenaiConfig {
        api_key_file: Some(file.path().into()),
        ..config("http://127.0.0.1:9/v1".into(), "m")
    });
    let mut secrets = provider.secrets().unwrap();
    assert_eq!(secrets, [KEY]);
    secrets.push("hunter2-of-the-database".into());
    let options = ReasonerOptions {
        redactor: Redactor::new(secrets),
        ..ReasonerOptions::default()
    };
    let _reasoner = Reasoner::spawn(options, bus.bus.clone(), None)
        .await
        .unwrap();
    let mut request = request();
    let bad = serde_json::json!({"steps": [], "result": {"$param": "hunter2-of-the-database"}});
    request.snapshot.playbook = Some(bad);
    let fault = ask(&bus.bus, "playbook", &request).await.unwrap_err();
    assert_eq!(fault.code, Code::PlanInvalid);
    assert!(!fault.to_string().contains("hunter2"), "{fault}");
}

/// Only watches.
struct Supervisor;

impl ractor::Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _me: ractor::ActorRef<()>,
        (): (),
    ) -> Result<(), ractor::ActorProcessingErr> {
        Ok(())
    }
}

#[tokio::test]
async fn it_ends_with_its_supervisor() {
    use ractor::Actor as _;
    let bus = bus();
    let (supervisor, ended) = Supervisor::spawn(None, Supervisor, ()).await.unwrap();
    let options = ReasonerOptions::default();
    let cell = Some(supervisor.get_cell());
    let reasoner = Reasoner::spawn(options, bus.bus.clone(), cell)
        .await
        .unwrap();
    ask(&bus.bus, "playbook", &request()).await.unwrap();
    supervisor.stop(None);
    ended.await.unwrap();
    // Returns once the actor has ended, whoever ended it.
    reasoner.stop().await;
    let fault = ask(&bus.bus, "playbook", &request()).await.unwrap_err();
    assert_eq!(fault.code, Code::NodeUnreachable);
}

//! The whole conformance suite on a real broker.

mod support;

use detent_bus::conformance::CASES;
use detent_bus::nats::NatsBus;
use support::server;

macro_rules! conformance {
    ($($part:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $part() {
            let prefix = concat!(stringify!($part), "::");
            let cases = CASES.iter().filter(|case| case.name.starts_with(prefix));
            let mut run = 0;
            for case in cases {
                println!("{}", case.name);
                let broker = server().await;
                let nats = NatsBus::connect(broker.options()).await.unwrap();
                (case.run)(nats.bus).await;
                run += 1;
            }
            assert!(run > 0, "no cases {prefix}*");
        }
    )*};
}

conformance!(messages, journal, forget, slots, leases, blobs, inbox);

#[test]
fn no_case_is_left_out() {
    let parts = [
        "messages", "journal", "forget", "slots", "leases", "blobs", "inbox",
    ];
    for case in CASES {
        let part = case.name.split("::").next().unwrap();
        assert!(parts.contains(&part), "{}", case.name);
    }
}

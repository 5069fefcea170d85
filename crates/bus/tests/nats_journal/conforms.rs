//! The conformance suite's cases of the journal on three servers, three copies of the
//! stream.

use super::*;
use detent_bus::conformance::CASES;

const PARTS: [&str; 3] = ["journal::", "slots::", "forget::"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_servers() {
    let cluster = support::cluster3().await;
    let jetstream = jetstream(&cluster.options()).await;
    let of_journal = |name: &str| PARTS.iter().any(|part| name.starts_with(part));
    let mut run = 0;
    for case in CASES.iter().filter(|case| of_journal(case.name)) {
        println!("{}", case.name);
        (case.run)(connect(cluster.options()).await).await;
        jetstream.delete_stream(JOURNAL).await.unwrap();
        run += 1;
    }
    assert!(run > 20, "{run} cases");
}

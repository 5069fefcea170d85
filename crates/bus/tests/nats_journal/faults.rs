//! Servers are killed in the middle: no confirmed entry is lost, none is there twice, none
//! is missing in between.

use super::goals::Owners;
use super::*;

const GOALS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_server_is_killed_again_and_again() {
    let mut broker = support::server_with(|options| options.sync_always = true).await;
    let bus = connect(broker.options()).await;
    let owners = Owners::start(&bus, GOALS);
    for _ in 0..3 {
        owners.progress(400).await;
        broker.server.kill().await;
        broker.server.restart().await.expect("it comes back");
    }
    // A server that is told to end answers to the last.
    owners.progress(400).await;
    broker.server.restart().await.expect("it comes back");
    owners.progress(400).await;
    owners.check(&bus).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed_and_another_is_stopped() {
    let mut cluster = support::cluster3().await;
    let options = cluster.options();
    let bus = connect(options.clone()).await;
    let owners = Owners::start(&bus, GOALS);
    for kill in [true, false] {
        owners.progress(1000).await;
        let leader = leader(&options).await;
        println!("the leader is {leader}");
        let named = |broker: &&mut support::Broker| broker.server.options().name == leader;
        let broker = cluster.servers.iter_mut().find(named).expect("a server");
        match kill {
            true => broker.server.kill().await,
            // Told to end, it hands over.
            false => broker.server.stop().await,
        }
        owners.progress(1000).await;
        broker.server.respawn().await.expect("it starts");
        cluster.wait_ready().await;
    }
    owners.progress(1000).await;
    owners.check(&bus).await;
}

/// Name of the server that leads the journal's stream.
async fn leader(options: &NatsOptions) -> String {
    let jetstream = jetstream(options).await;
    let asked = async {
        loop {
            if let Ok(mut stream) = jetstream.get_stream(JOURNAL).await
                && let Ok(info) = stream.info().await
                && let Some(leader) = info.cluster.as_ref().and_then(|c| c.leader.clone())
            {
                return leader;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let asked = tokio::time::timeout(support::PATIENCE, asked).await;
    asked.expect("a leader")
}

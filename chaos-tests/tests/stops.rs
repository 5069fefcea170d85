//! Stops: SIGTERM drains, SIGKILL at any moment loses nothing, and a second node on the
//! same data directory is refused while the first goes on.

use detent_chaos_tests::chance::{self, Chance};
use detent_chaos_tests::check::{self, Agent};
use detent_chaos_tests::process::{NodeProcess, PATIENCE, Start, wait_for, was_killed};
use detent_chaos_tests::site::{Order, Site};
use detent_protocol::messages::GoalEvent;
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn site() -> (tempfile::TempDir, Site) {
    let root = tempfile::Builder::new()
        .prefix("detent-stop-")
        .tempdir()
        .unwrap();
    let site = Site::new(root.path()).unwrap();
    (root, site)
}

/// Waits until all goals have ended, stops the node and looks at what is left.
fn end_and_check(site: &Site, mut node: NodeProcess, agent: Agent, orders: &[Order], says: &str) {
    let ended = wait_for(&mut node, "the end of all goals", || {
        let list = site.list()?;
        let ended = list.iter().filter(|l| l.status.is_some()).count();
        Ok((ended >= orders.len()).then_some(()))
    });
    assert!(ended.unwrap().is_some(), "{says}: the node ended");
    assert!(node.terminate().unwrap().success(), "{says}");
    let found = check::after(site, agent, orders).unwrap();
    assert!(found.is_clean(), "{says}: {found:?}");
}

#[test]
fn sigterm_lets_running_tools_end_and_keeps_what_they_did() {
    let (_root, site) = site();
    let log = site.home.join("starts.log");
    let mut node = NodeProcess::up_ready(&site).unwrap();
    // Several at once: the last outcomes come in while the node is about to go.
    let mut orders: Vec<_> = (0..6)
        .map(|n| site.order("light", n, 3_000).unwrap())
        .collect();
    for order in &mut orders {
        assert!(site.submit(order).unwrap());
    }
    let runs = wait_for(&mut node, "the tools' start", || {
        Ok((check::started(&log)?.len() == orders.len()).then_some(()))
    });
    assert!(runs.unwrap().is_some(), "the node ended");
    let before = check::finished(&log).unwrap();
    assert!(before.len() < orders.len(), "the tools were too fast");

    let status = node.terminate().unwrap();
    assert_eq!(status.code(), Some(0));
    let started = check::started(&log).unwrap();
    let finished = check::finished(&log).unwrap();
    assert_eq!(finished.len(), orders.len(), "they ran to their end");
    for order in &orders {
        let stopped = site.export_and_replay(order.goal.unwrap()).unwrap();
        let outcome = |e: &&GoalEvent| {
            e.kind == "outcome" && e.step.as_ref().is_some_and(|s| s.as_str() == "post")
        };
        let outcomes = stopped.events.iter().filter(outcome).count();
        assert_eq!(outcomes, 1, "{}: the outcome is on record", order.key);
    }

    let node = NodeProcess::up_ready(&site).unwrap();
    end_and_check(&site, node, Agent::Light, &orders, "after the restart");
    assert_eq!(check::started(&log).unwrap(), started, "none ran again");
}

#[test]
fn kills_at_random_times_under_a_hundred_goals_lose_nothing() {
    const GOALS: u64 = 100;
    const KILLS: u64 = 10;
    let seed = chance::seed().unwrap();
    let mut chance = Chance::new(seed, 0);
    let (_root, site) = site();
    let orders: Vec<_> = (0..GOALS)
        .map(|n| site.order("light", n, 20).unwrap())
        .collect();
    let (orders, until) = (Mutex::new(orders), Instant::now() + 2 * PATIENCE);
    let submit_all = || {
        for n in 0..GOALS as usize {
            let mut order = orders.lock().unwrap()[n].clone();
            // An answer that does not come says nothing: the same key again. A node that
            // is down is waited for.
            while !site.submit(&mut order).unwrap() {
                assert!(Instant::now() < until, "nobody takes order {n}");
                std::thread::sleep(Duration::from_millis(20));
            }
            orders.lock().unwrap()[n] = order;
        }
    };
    let node = std::thread::scope(|scope| {
        let submitter = scope.spawn(submit_all);
        for _ in 0..KILLS {
            let mut node = NodeProcess::up_ready(&site).unwrap();
            // The moment of the fault, not a wait for anything.
            std::thread::sleep(Duration::from_millis(chance.between(0, 700)));
            assert!(was_killed(node.kill().unwrap()));
        }
        let node = NodeProcess::up_ready(&site).unwrap();
        submitter.join().unwrap();
        node
    });
    let orders = orders.into_inner().unwrap();
    let says = format!("DETENT_SEED={seed}");
    end_and_check(&site, node, Agent::Light, &orders, &says);
}

#[test]
fn a_second_node_is_refused_and_the_first_goes_on() {
    let (_root, site) = site();
    let mut order = site.order("light", 1, 300).unwrap();
    let mut first = NodeProcess::up_ready(&site).unwrap();
    assert!(site.submit(&mut order).unwrap());

    let mut second = NodeProcess::up(&site, None).unwrap();
    let Start::Ended(status, fault) = second.wait_line("ready").unwrap() else {
        panic!("two nodes on one data directory");
    };
    assert_eq!(status.code(), Some(4));
    assert_eq!(fault.unwrap()["fault"]["code"], "DATA_DIR_LOCKED");

    assert!(first.ended().unwrap().is_none(), "the first node ended");
    let mut later = site.order("light", 2, 0).unwrap();
    assert!(site.submit(&mut later).unwrap());
    end_and_check(
        &site,
        first,
        Agent::Light,
        &[order, later],
        "the first node",
    );
}

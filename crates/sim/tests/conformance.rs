//! The simulated bus does what every bus has to do.

use detent_bus::conformance::CASES;
use detent_sim::bus::Fabric;

#[test]
fn the_simulated_bus_conforms_on_a_paused_clock() {
    for case in CASES {
        println!("{}", case.name);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { (case.run)(Fabric::reliable()).await });
    }
}

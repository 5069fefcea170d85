//! The keeper that the tests start their programs under.

fn main() {
    std::process::exit(detent_sandbox::keeper_main());
}

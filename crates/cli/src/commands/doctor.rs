//! `detent doctor`

use crate::args::Global;
use crate::commands::load;
use crate::{KEEPER, exit, output};
use detent_node::doctor;
use detent_protocol::Fault;
use detent_sandbox::KeeperCommand;

pub(crate) async fn doctor(global: &Global) -> Result<u8, Fault> {
    let config = load(global, None, &[])?;
    let keeper = KeeperCommand::this_program(&[KEEPER]);
    let checks = doctor::run(&config, &global.data, keeper).await;
    let mut bad = 0;
    for check in &checks {
        bad += usize::from(check.fault.is_some());
        if output::is_json() {
            output::json(check);
            continue;
        }
        match &check.fault {
            None => output::line(format!("ok    {:<18} {}", check.name, check.found)),
            Some(fault) => {
                output::line(format!("BAD   {:<18} {fault}", check.name));
                output::line(format!("      next: {}", fault.code.next()));
            }
        }
    }
    output::note(format!("detent: {} checks, {bad} bad", checks.len()));
    Ok(if bad == 0 { exit::OK } else { exit::REFUSED })
}

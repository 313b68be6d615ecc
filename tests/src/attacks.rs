//! The attacks on the isolation, for `cargo attacks`: each attack is made bare, where it has to succeed, in each
//! worker's profile, where it has to fail, and then with walls taken away, so that the table names what stopped it.
//! Victims are real: a supervisor that serves, and its workers.
//!
//! A row says, for one attack on one victim: the control; how it ends in relayd, pulld and vpnd; and the walls of
//! which each stops it by itself. Without all named walls, behind all others, it has succeeded.

pub mod attempts;
pub mod child;
mod files;
pub mod filter;
mod kernel;
mod list;
mod memory;
mod network;
pub mod one_user;
pub mod processes;
mod stage;
mod table;
mod verdict;
mod wall;
mod work;

use std::path::Path;

use stage::Stage;
use table::attack_all;
pub use wall::refuse_on_this_thread;

/// Makes all attacks, prints the table, and tells what is not as promised. Gives the rows of which this host shows no
/// control.
///
/// # Errors
/// A line for each cell that is not as promised, or why there is nothing to attack.
pub async fn run(executables: Option<&Path>) -> Result<Vec<String>, Vec<String>> {
    println!("{}", one_user::described().map_err(|why| vec![why])?);
    let stage = Stage::set(executables).await.map_err(|late| vec![late.to_string()])?;
    // Attackers are waited for, and a relay's doubles go on meanwhile.
    let table = tokio::task::block_in_place(|| attack_all(&stage));
    print!("{}", table.text);
    if table.faults.is_empty() { Ok(table.without_control) } else { Err(table.faults) }
}

//! `redlock acquire`: takes the lock and prints its token.

use super::talk;
use crate::cli::Format;
use crate::exit::Exit;
use crate::lock::Locker;
use crate::output;
use crate::plan::Acquire;
use crate::sys::interrupt::Ending;
use crate::waiting::Line;

pub(crate) fn run(plan: Acquire) -> anyhow::Result<Exit> {
    let ending = Ending::keep_back();
    let mut locker = Locker::new(&plan.settings, &plan.name, plan.request.ttl)?;
    let interrupter = locker.interrupter();
    ending.tell(move |signal| interrupter.interrupt(signal));
    let mut line = Line::new(&plan.name, plan.manner.quiet, plan.manner.verbose);
    let acquired = locker.acquire(&plan.request, &mut |waiting| line.show(waiting));
    drop(line);
    let lease = acquired?;
    let printed = match plan.manner.format {
        Format::Text => output::token(&lease),
        Format::Env => output::lease_env(&plan.name, &lease),
        Format::Json => output::lease_json(&plan.name, locker.key(), &lease),
    };
    if let Err(error) = printed {
        // Nobody knows the token: nobody could release it.
        return Err(match locker.release(&lease, None) {
            Ok(_) => {
                anyhow::Error::from(error).context(format!("{:?} was released again", plan.name))
            }
            Err(_) => anyhow::Error::from(error)
                .context(format!("{:?} stays taken until its lease ends", plan.name)),
        });
    }
    if plan.manner.verbose {
        talk(&format!(
            "acquired {:?} on {}, fencing token {}",
            plan.name,
            locker.nodes(),
            lease.fencing_token
        ));
    }
    Ok(Exit::Done)
}

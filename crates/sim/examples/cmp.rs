fn main(){ use detent_sim::chance::Faults; let some=Faults{message_late:60,append_false_fence:10,ledger:20,probe_outage:20,settle_late:100,..Faults::NONE};
for (n,f,old) in [(194,Faults{crash:3,append_unclear:60,journal_outage:40,tool:100,..some},"/tmp/t194.txt"),(230,Faults{message_lost:10,append_unclear:10,tool:350,..some},"/tmp/t230.txt")] {
 let r=detent_sim::run(n,&detent_sim::Options{faults:Some(f),keep_trace:true,..Default::default()}).unwrap();
 let old=std::fs::read_to_string(old).unwrap(); let o:Vec<_>=old.lines().collect();
 let d=(1..r.trace.len().min(o.len())).find(|i| r.trace[*i]!=o[*i]); println!("{n}: differ at line {d:?}"); if let Some(d)=d {println!("old {}\nnew {}",o[d],r.trace[d]);} } }

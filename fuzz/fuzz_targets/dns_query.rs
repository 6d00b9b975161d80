#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sandcove_names::fuzzing::dns_query(input));

CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO "_sqlx_migrations" VALUES (1, 'base', '2026-11-29 17:36:12', 1, X'E486E83F4CA47486622107CF2A1A3621960053CC49EB2BA2498DB6A649DAC79A8F48699505DF0BACF86A4FCDE01E2939', 1669148);
INSERT INTO "_sqlx_migrations" VALUES (10, 'teams', '2026-11-29 17:36:12', 1, X'EC90F43C1F0EDB343D3434A931E775F1E28856A9F945566C37400CCD3085B0BC4DE4808F25639190A0F9C4F8435A36B6', 5366268);
INSERT INTO "_sqlx_migrations" VALUES (11, 'volumes', '2026-11-29 17:36:12', 1, X'2D84F5071DE19DC4F61B0C24BDD7E5D9654381A7ED3D644A15560BFE9492588765FFFE2CBA8157573FB6B35D571000D0', 732223);
INSERT INTO "_sqlx_migrations" VALUES (12, 'events', '2026-11-29 17:36:12', 1, X'A3EEB7F353C9DDB80E25078932A1CBA5D76E5D3A9F0C2618ECFAD8868AB447F0B59D38F2D7A1394E4DFBC8F4EF03F96F', 2694677);
INSERT INTO "_sqlx_migrations" VALUES (13, 'team metrics', '2026-11-29 17:36:12', 1, X'504DF44E182532754571D920BAAD097296D0594DA1BBEE68790C992E1BC3D28619E8CB9AC91C0BC8D6331901925F0242', 282352);
INSERT INTO "_sqlx_migrations" VALUES (14, 'observed', '2026-11-29 17:36:12', 1, X'259418A07DA04BD49D022C9867F04CAEC250BAF4D25ADA0649136464A5AFD49368A62E54AD4FD6BA93441D8A30F91A31', 2248106);
INSERT INTO "_sqlx_migrations" VALUES (15, 'whole builds', '2026-11-29 17:36:12', 1, X'A91C7ACF41CB6F9FC911D21D91BFA46ED16A6E213633D384DC43770596709B4B16A8FE2E2E6302B79C0C45B4D936C812', 157059);
INSERT INTO "_sqlx_migrations" VALUES (16, 'quotas', '2026-11-29 17:36:12', 1, X'9C13B53103206C65C7623D2E592C4640037B5F1E007E258487860F71BE3EFDAC9DB44A953C99FAD9BF0043874E02531B', 7449926);
INSERT INTO "_sqlx_migrations" VALUES (17, 'builds', '2026-11-29 17:36:12', 1, X'1AE279219184D0B159B335480F419BBE86C03DA125157D6E66EA5717B3DC577255FF43E291653DF9042E456BD21EB1D2', 7902271);
INSERT INTO "_sqlx_migrations" VALUES (18, 'step cache', '2026-11-29 17:36:12', 1, X'753E15348514745AACAF8A52C6FC36082597667E5427F5F65BDD0A86CFEF82FB7C95EDB067A6D493213C77670F65175D', 598148);
INSERT INTO "_sqlx_migrations" VALUES (22, 'secrets', '2026-11-29 17:36:12', 1, X'FE34067AED40709FF427E03E649E5BF71641E7EF91D4A53BE5EE4B5B04158B78F5C5F041AD65C8681CA42768A152E3CE', 329284);
INSERT INTO "_sqlx_migrations" VALUES (36, 'rates', '2026-11-29 17:36:12', 1, X'10F3F159E64E858746F9C5401AB5B76D603EC6AD46E7066BDE39F4440774239A117FE52F9E7F4D1A67DF1C3BAB1243FF', 3062398);
INSERT INTO "_sqlx_migrations" VALUES (38, 'started', '2026-11-29 17:36:12', 1, X'6AFEDA323CBA1F03D9D677B7BE7F590CA309916402F37F0298763EAE344A5D178C33313596B6FCE5379A2AE59BEBAA52', 388751);
CREATE TABLE teams (
    id TEXT PRIMARY KEY NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    is_default BOOLEAN NOT NULL DEFAULT FALSE,
    banned BOOLEAN NOT NULL DEFAULT FALSE,
    blocked_reason TEXT,
    max_sandboxes BIGINT NOT NULL,
    max_session_seconds BIGINT NOT NULL,
    created_at BIGINT NOT NULL
, max_cpus BIGINT NOT NULL DEFAULT 32, max_memory_mib BIGINT NOT NULL DEFAULT 262144, max_disk_mib BIGINT NOT NULL DEFAULT 1048576, events_ttl_days BIGINT NOT NULL DEFAULT 7, max_paused BIGINT NOT NULL DEFAULT 1000, max_in_memory BIGINT NOT NULL DEFAULT 1000, max_paused_mib BIGINT NOT NULL DEFAULT 262144, max_snapshots BIGINT NOT NULL DEFAULT 1000, max_snapshots_mib BIGINT NOT NULL DEFAULT 1048576, max_volumes BIGINT NOT NULL DEFAULT 1000, bandwidth_mbps BIGINT NOT NULL DEFAULT 0, connections_per_second BIGINT NOT NULL DEFAULT 0);
INSERT INTO "teams" VALUES ('8af21c07-c2e4-4711-9171-f49279a77fd6', 'default', 'Default', 1, 0, NULL, 1000, 86400, 1795973772792443, 32, 262144, 1048576, 7, 1000, 1000, 262144, 1000, 1048576, 1000, 0, 0);
INSERT INTO "teams" VALUES ('dd97576f-6a3f-4627-b5c2-c394808f3858', 'other', 'Other', 0, 0, NULL, 2, 3600, 1795973772843345, 32, 262144, 1048576, 7, 1000, 1000, 262144, 1000, 1048576, 1000, 0, 0);
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    mask TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
INSERT INTO "api_keys" VALUES ('0e68287a-a000-4d8c-aa2a-da5808e8c11f', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'configured', '285c79b208f1b809feed44bd1339b85da6a5f0a9c2e0fb5a95792d7989af7232', '{"prefix":"e2b_","valueLength":40,"maskedValuePrefix":"01","maskedValueSuffix":"4567"}', 1795973772793825, 1795973772879358);
INSERT INTO "api_keys" VALUES ('43464c76-f101-430e-83ba-2590691e6712', 'dd97576f-6a3f-4627-b5c2-c394808f3858', 'k', 'ee62d346e057821a022acfef71ed19de3434336a9e0d40bc0e99965ee3121944', '{"prefix":"e2b_","valueLength":2,"maskedValuePrefix":"00","maskedValueSuffix":"00"}', 1795973772843866, NULL);
INSERT INTO "api_keys" VALUES ('edefef46-7238-4d6a-bc7b-1cf1c1aa4c0a', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'upgraded', '42d8705adfb0bf9b55650e18a5cba919232359970be8cbe531d984ded6d9f043', '{"prefix":"e2b_","valueLength":40,"maskedValuePrefix":"91","maskedValueSuffix":"8c2e"}', 1795973772851899, NULL);
CREATE TABLE templates (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT REFERENCES teams (id),
    name TEXT NOT NULL,
    public BOOLEAN NOT NULL,
    spawn_count BIGINT NOT NULL DEFAULT 0,
    last_spawned_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
, deleted_at BIGINT, global_name TEXT);
INSERT INTO "templates" VALUES ('base0000000000000000', NULL, 'base', 1, 2, 1795973773375338, 1795973772838034, 1795973772838034, NULL, NULL);
INSERT INTO "templates" VALUES ('8ig4ma6q5cpbd7h84tus', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'app', 0, 3, 1795973773311192, 1795973772903506, 1795973772968413, NULL, NULL);
INSERT INTO "templates" VALUES ('46cj3445jnn9xg3jzd7p', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'built', 0, 0, NULL, 1795973772979666, 1795973773043410, NULL, NULL);
INSERT INTO "templates" VALUES ('pu25ek0s8uar6eg0y895', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'failed', 0, 0, NULL, 1795973773061704, 1795973773061704, NULL, NULL);
INSERT INTO "templates" VALUES ('swzatvrk1od9ixlgx08g', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'checkpoint', 0, 1, 1795973773491274, 1795973773411489, 1795973773411489, NULL, NULL);
INSERT INTO "templates" VALUES ('vr8n2f51tsbjud8r4xn4', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'vr8n2f51tsbjud8r4xn4', 0, 0, NULL, 1795973773458507, 1795973773458507, NULL, NULL);
CREATE TABLE template_builds (
    id TEXT PRIMARY KEY NOT NULL,
    template_id TEXT NOT NULL REFERENCES templates (id),
    status TEXT NOT NULL,
    record TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT
, tags TEXT NOT NULL DEFAULT '[]', spec TEXT, reason TEXT);
INSERT INTO "template_builds" VALUES ('00000000-0000-0000-0000-000000000001', 'base0000000000000000', 'ready', '{"template_id":"base0000000000000000","build_id":"00000000-0000-0000-0000-000000000001","name":"base","layers":["top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{},"cpu_count":2,"memory_mib":512,"disk_mib":1024,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null}', 1795973772838034, 1795973772838034, 1795973772838034, '[]', NULL, NULL);
INSERT INTO "template_builds" VALUES ('552b8813-a94c-4a11-90bb-93c79ca72a05', '8ig4ma6q5cpbd7h84tus', 'ready', '{"template_id":"8ig4ma6q5cpbd7h84tus","build_id":"552b8813-a94c-4a11-90bb-93c79ca72a05","name":"app","layers":["t-552b8813a94c4a1190bb93c79ca72a05/upper","top","bottom"],"services":[],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":null,"build_env":{},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null}', 1795973772903506, 1795973772933012, 1795973772933012, '["v1"]', '{"from":{"image":"debian:stable"},"steps":[],"start_cmd":null,"ready_cmd":null,"force":false}', NULL);
INSERT INTO "template_builds" VALUES ('a774d988-c5b7-4d51-96b3-2a59a73fe908', '46cj3445jnn9xg3jzd7p', 'ready', '{"template_id":"46cj3445jnn9xg3jzd7p","build_id":"a774d988-c5b7-4d51-96b3-2a59a73fe908","name":"built","layers":["t-772ab793412d2d855b2bd57eb3f0cba7/upper","top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{"A":"1"},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null}', 1795973772979666, 1795973773043410, 1795973773043410, '["default"]', '{"from":{"template":"base"},"steps":[{"kind":"RUN","args":["say hello"],"files_hash":null,"force":false},{"kind":"ENV","args":["A","1"],"files_hash":null,"force":false}],"start_cmd":null,"ready_cmd":null,"force":false}', NULL);
INSERT INTO "template_builds" VALUES ('45ce2374-274f-4976-8754-f6202c1db26d', 'pu25ek0s8uar6eg0y895', 'error', '{"template_id":"pu25ek0s8uar6eg0y895","build_id":"45ce2374-274f-4976-8754-f6202c1db26d","name":"failed","layers":[],"services":[],"env":{},"default_user":"","default_workdir":null,"build_env":{},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null}', 1795973773061704, 1795973773133653, 1795973773133653, '["default"]', '{"from":{"template":"base"},"steps":[{"kind":"RUN","args":["exit 3"],"files_hash":null,"force":false}],"start_cmd":null,"ready_cmd":null,"force":false}', '{"message":"failed to run command ''exit 3'': exit status 3","step":"1"}');
INSERT INTO "template_builds" VALUES ('18769353-76eb-49ee-9e30-29ed6943bf1a', 'swzatvrk1od9ixlgx08g', 'ready', '{"template_id":"swzatvrk1od9ixlgx08g","build_id":"18769353-76eb-49ee-9e30-29ed6943bf1a","name":"checkpoint","layers":["top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{},"cpu_count":2,"memory_mib":512,"disk_mib":1024,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":"if7dao6vp9p20ajjglm5v","memory_bytes":7340032,"started":null}', 1795973773411489, 1795973773411489, 1795973773411489, '[]', NULL, NULL);
INSERT INTO "template_builds" VALUES ('b9bfa175-8681-484b-a344-f64916e68e38', 'vr8n2f51tsbjud8r4xn4', 'ready', '{"template_id":"vr8n2f51tsbjud8r4xn4","build_id":"b9bfa175-8681-484b-a344-f64916e68e38","name":"","layers":["top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{},"cpu_count":2,"memory_mib":512,"disk_mib":1024,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":"if7dao6vp9p20ajjglm5v","memory_bytes":null,"started":null}', 1795973773458507, 1795973773458507, 1795973773458507, '[]', NULL, NULL);
CREATE TABLE template_tags (
    template_id TEXT NOT NULL REFERENCES templates (id),
    tag TEXT NOT NULL,
    build_id TEXT NOT NULL REFERENCES template_builds (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag)
);
INSERT INTO "template_tags" VALUES ('base0000000000000000', 'default', '00000000-0000-0000-0000-000000000001', 1795973772838034);
INSERT INTO "template_tags" VALUES ('8ig4ma6q5cpbd7h84tus', 'v1', '552b8813-a94c-4a11-90bb-93c79ca72a05', 1795973772933012);
INSERT INTO "template_tags" VALUES ('8ig4ma6q5cpbd7h84tus', 'prod', '552b8813-a94c-4a11-90bb-93c79ca72a05', 1795973772968413);
INSERT INTO "template_tags" VALUES ('46cj3445jnn9xg3jzd7p', 'default', 'a774d988-c5b7-4d51-96b3-2a59a73fe908', 1795973773043410);
INSERT INTO "template_tags" VALUES ('swzatvrk1od9ixlgx08g', 'default', '18769353-76eb-49ee-9e30-29ed6943bf1a', 1795973773411489);
INSERT INTO "template_tags" VALUES ('vr8n2f51tsbjud8r4xn4', 'default', 'b9bfa175-8681-484b-a344-f64916e68e38', 1795973773458507);
CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    state TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    end_at BIGINT NOT NULL,
    details TEXT NOT NULL,
    settings TEXT NOT NULL
);
INSERT INTO "sandboxes" VALUES ('if7dao6vp9p20ajjglm5v', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'running', 1795973773161952, 1795977373161952, '{"id":"if7dao6vp9p20ajjglm5v","team":"8af21c07-c2e4-4711-9171-f49279a77fd6","build":{"template_id":"base0000000000000000","build_id":"00000000-0000-0000-0000-000000000001","name":"base","layers":["top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{},"cpu_count":2,"memory_mib":512,"disk_mib":1024,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null},"limits":{"memory_mib":512,"cpus":2,"pids":1024,"disk_mib":1024},"metadata":{"is":"running"},"env_vars":{"A":"1"},"access_token":"5055e6517cf3801fbec13aa27a273a217210a28efbd1b59769450338ec9cb08a","token_required":true,"interpreter_token_required":true,"legacy":false,"traffic_token":"27c50f00ac56ccc85fddb97e22ce48de969ea7a87269bf679dea9ed8c5ede5c8","timeout":{"secs":3600,"nanos":0},"auto_resume":true,"mcp":null,"mounts":[{"name":"data","volume":"f41bac3b-fc4b-41dd-a24e-e79d9ad5df1b","path":"/mnt/data"}]}', '{"on_expiry":"kill","network":{"given":{"allowPublicTraffic":false,"allowOut":["8.8.8.8","example.com"],"denyOut":["0.0.0.0/0"]},"allow_internet_access":null},"demoted":false,"parked":null}');
INSERT INTO "sandboxes" VALUES ('ijedci26s2v8qvkmsdjax', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'paused', 1795973773181939, 1795973773219504, '{"id":"ijedci26s2v8qvkmsdjax","team":"8af21c07-c2e4-4711-9171-f49279a77fd6","build":{"template_id":"8ig4ma6q5cpbd7h84tus","build_id":"552b8813-a94c-4a11-90bb-93c79ca72a05","name":"app","layers":["t-552b8813a94c4a1190bb93c79ca72a05/upper","top","bottom"],"services":[],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":null,"build_env":{},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null},"limits":{"memory_mib":1024,"cpus":2,"pids":1024,"disk_mib":10240},"metadata":{"is":"frozen"},"env_vars":{},"access_token":"112037678b1605656767b32b2264f46053a82ed7960710c5b44667a1d289f9d8","token_required":false,"interpreter_token_required":false,"legacy":false,"traffic_token":null,"timeout":{"secs":60,"nanos":0},"auto_resume":false,"mcp":null,"mounts":[]}', '{"on_expiry":"pause","network":{"given":null,"allow_internet_access":null},"demoted":false,"parked":null}');
INSERT INTO "sandboxes" VALUES ('ixf7fwyi4xlj1spztskg9', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'stored', 1795973773264574, 1795973773277313, '{"id":"ixf7fwyi4xlj1spztskg9","team":"8af21c07-c2e4-4711-9171-f49279a77fd6","build":{"template_id":"8ig4ma6q5cpbd7h84tus","build_id":"552b8813-a94c-4a11-90bb-93c79ca72a05","name":"app","layers":["t-552b8813a94c4a1190bb93c79ca72a05/upper","top","bottom"],"services":[],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":null,"build_env":{},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null},"limits":{"memory_mib":1024,"cpus":2,"pids":1024,"disk_mib":10240},"metadata":{"is":"files"},"env_vars":{},"access_token":"3e7c89174926205e7378ac92f7cd8860fa2cd0a975828f0c0af89d645c5752be","token_required":false,"interpreter_token_required":false,"legacy":false,"traffic_token":null,"timeout":{"secs":60,"nanos":0},"auto_resume":false,"mcp":null,"mounts":[]}', '{"on_expiry":"pause","network":{"given":null,"allow_internet_access":null},"demoted":false,"parked":null}');
INSERT INTO "sandboxes" VALUES ('il9hkde5srx9ii84j2ha6', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'paused', 1795973773308146, 1795973773328068, '{"id":"il9hkde5srx9ii84j2ha6","team":"8af21c07-c2e4-4711-9171-f49279a77fd6","build":{"template_id":"8ig4ma6q5cpbd7h84tus","build_id":"552b8813-a94c-4a11-90bb-93c79ca72a05","name":"app","layers":["t-552b8813a94c4a1190bb93c79ca72a05/upper","top","bottom"],"services":[],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":null,"build_env":{},"cpu_count":2,"memory_mib":1024,"disk_mib":10240,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":null,"memory_bytes":null,"started":null},"limits":{"memory_mib":1024,"cpus":2,"pids":1024,"disk_mib":10240},"metadata":{"is":"parked"},"env_vars":{},"access_token":"359b1829bf7c7bf53773ec37032bd9958d21617519cc2c7dfd27c42f5fb0378b","token_required":false,"interpreter_token_required":false,"legacy":false,"traffic_token":null,"timeout":{"secs":60,"nanos":0},"auto_resume":false,"mcp":null,"mounts":[]}', '{"on_expiry":"pause","network":{"given":null,"allow_internet_access":null},"demoted":false,"parked":7340032}');
INSERT INTO "sandboxes" VALUES ('idlh3r05xehaxq9pgio11', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'running', 1795973773489077, 1795977373489077, '{"id":"idlh3r05xehaxq9pgio11","team":"8af21c07-c2e4-4711-9171-f49279a77fd6","build":{"template_id":"swzatvrk1od9ixlgx08g","build_id":"18769353-76eb-49ee-9e30-29ed6943bf1a","name":"checkpoint","layers":["top","bottom"],"services":[{"name":"service","command":["/bin/true"],"user":"root","env":{},"cwd":"/","ready_port":null,"zygote":false,"once":false,"ready_command":null}],"env":{"BOTH":"template","FROM_TEMPLATE":"1"},"default_user":"user","default_workdir":"/home/user","build_env":{},"cpu_count":2,"memory_mib":512,"disk_mib":1024,"envd_version":"0.6.13","start_cmd":null,"ready_cmd":null,"snapshot_of":"if7dao6vp9p20ajjglm5v","memory_bytes":7340032,"started":null},"limits":{"memory_mib":512,"cpus":2,"pids":1024,"disk_mib":1024},"metadata":{"is":"copy"},"env_vars":{},"access_token":"3c15ea6529d34386c7f509dda21f3d1260fc97097e43ba49e96c6d6a62d02254","token_required":true,"interpreter_token_required":true,"legacy":false,"traffic_token":null,"timeout":{"secs":3600,"nanos":0},"auto_resume":false,"mcp":null,"mounts":[]}', '{"on_expiry":"kill","network":{"given":null,"allow_internet_access":null},"demoted":false,"parked":null}');
CREATE TABLE idempotency_keys (
    team_id TEXT NOT NULL REFERENCES teams (id),
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    sandbox_id TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, key)
);
INSERT INTO "idempotency_keys" VALUES ('8af21c07-c2e4-4711-9171-f49279a77fd6', 'once', '8da0fe2c2131a665759ca44da64c802ee915146fd1127acb505b650be2fe048c', 'idlh3r05xehaxq9pgio11', 1795973773484638);
CREATE TABLE access_tokens (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    mask TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
INSERT INTO "access_tokens" VALUES ('7fa52ee0-39f8-4cb5-9da7-9c4f3f12aa12', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'upgraded', 'de041a29784cde4d16fab31b07fbb40575872d6d92b569af32c27e672d23054b', '{"prefix":"sk_e2b_","valueLength":40,"maskedValuePrefix":"14","maskedValueSuffix":"9856"}', 1795973772864812);
CREATE TABLE volumes (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (team_id, name)
);
INSERT INTO "volumes" VALUES ('f41bac3b-fc4b-41dd-a24e-e79d9ad5df1b', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'data', 1795973772888482);
CREATE TABLE server_secrets (
    name TEXT PRIMARY KEY NOT NULL,
    secret TEXT NOT NULL
);
INSERT INTO "server_secrets" VALUES ('upload links', '6d129113d0d8f741c1acf886d6e01ca8395cc2606a09307ae2889aac165ffb1b');
INSERT INTO "server_secrets" VALUES ('volume tokens', '6c2b0b4805f63b0aaa322a690d2622903425c5e12e9c14d3d8c25df841945ac7');
CREATE TABLE events (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    type TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    event TEXT NOT NULL
, bytes BIGINT NOT NULL DEFAULT 1024);
INSERT INTO "events" VALUES ('21d560d6-f392-4338-b9b9-dc026f1006a1', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 'sandbox.lifecycle.created', 1795973773161962, '{"id":"21d560d6-f392-4338-b9b9-dc026f1006a1","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.161962Z","eventCategory":"lifecycle","eventLabel":"create","eventData":{"sandbox_metadata":{"is":"running"}},"sandboxId":"if7dao6vp9p20ajjglm5v","sandboxExecutionId":"c982983b-7d3c-450d-a3fe-0bdaba87fd38","sandboxTemplateId":"base0000000000000000","sandboxBuildId":"00000000-0000-0000-0000-000000000001","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 487);
INSERT INTO "events" VALUES ('e2047d4f-27a5-4be0-a22f-c8d310bca814', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ijedci26s2v8qvkmsdjax', 'sandbox.lifecycle.created', 1795973773181945, '{"id":"e2047d4f-27a5-4be0-a22f-c8d310bca814","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.181945Z","eventCategory":"lifecycle","eventLabel":"create","eventData":{"sandbox_metadata":{"is":"frozen"}},"sandboxId":"ijedci26s2v8qvkmsdjax","sandboxExecutionId":"5c14d77e-f349-4d78-853a-c393ed695f0f","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 486);
INSERT INTO "events" VALUES ('559c89b8-e9af-4f24-a417-482f24205a7e', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ijedci26s2v8qvkmsdjax', 'sandbox.lifecycle.paused', 1795973773219519, '{"id":"559c89b8-e9af-4f24-a417-482f24205a7e","version":"v2","type":"sandbox.lifecycle.paused","timestamp":"2026-11-29T17:36:13.219519Z","eventCategory":"lifecycle","eventLabel":"pause","eventData":{"execution":{"execution_time":38,"memory_mb":1024,"started_at":"2026-11-29T17:36:13.181939Z","vcpu_count":2},"sandbox_metadata":{"is":"frozen"}},"sandboxId":"ijedci26s2v8qvkmsdjax","sandboxExecutionId":"5c14d77e-f349-4d78-853a-c393ed695f0f","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 593);
INSERT INTO "events" VALUES ('17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ixf7fwyi4xlj1spztskg9', 'sandbox.lifecycle.created', 1795973773264584, '{"id":"17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.264584Z","eventCategory":"lifecycle","eventLabel":"create","eventData":{"sandbox_metadata":{"is":"files"}},"sandboxId":"ixf7fwyi4xlj1spztskg9","sandboxExecutionId":"f8856e23-b35c-4e79-9155-59e5a8a40a76","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 485);
INSERT INTO "events" VALUES ('4ef280f7-3959-4566-9a1f-c967f618decf', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ixf7fwyi4xlj1spztskg9', 'sandbox.lifecycle.paused', 1795973773277318, '{"id":"4ef280f7-3959-4566-9a1f-c967f618decf","version":"v2","type":"sandbox.lifecycle.paused","timestamp":"2026-11-29T17:36:13.277318Z","eventCategory":"lifecycle","eventLabel":"pause","eventData":{"execution":{"execution_time":13,"memory_mb":1024,"started_at":"2026-11-29T17:36:13.264574Z","vcpu_count":2},"sandbox_metadata":{"is":"files"}},"sandboxId":"ixf7fwyi4xlj1spztskg9","sandboxExecutionId":"f8856e23-b35c-4e79-9155-59e5a8a40a76","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 592);
INSERT INTO "events" VALUES ('e8adc827-5619-42bb-a2ce-561f78b673b1', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'il9hkde5srx9ii84j2ha6', 'sandbox.lifecycle.created', 1795973773308155, '{"id":"e8adc827-5619-42bb-a2ce-561f78b673b1","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.308155Z","eventCategory":"lifecycle","eventLabel":"create","eventData":{"sandbox_metadata":{"is":"parked"}},"sandboxId":"il9hkde5srx9ii84j2ha6","sandboxExecutionId":"da717af4-3a68-4cf8-af1c-0a69580c0714","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 486);
INSERT INTO "events" VALUES ('0e0008d5-5789-485b-9735-0ac24016ad6b', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'il9hkde5srx9ii84j2ha6', 'sandbox.lifecycle.paused', 1795973773328081, '{"id":"0e0008d5-5789-485b-9735-0ac24016ad6b","version":"v2","type":"sandbox.lifecycle.paused","timestamp":"2026-11-29T17:36:13.328081Z","eventCategory":"lifecycle","eventLabel":"pause","eventData":{"execution":{"execution_time":20,"memory_mb":1024,"started_at":"2026-11-29T17:36:13.308146Z","vcpu_count":2},"sandbox_metadata":{"is":"parked"}},"sandboxId":"il9hkde5srx9ii84j2ha6","sandboxExecutionId":"da717af4-3a68-4cf8-af1c-0a69580c0714","sandboxTemplateId":"8ig4ma6q5cpbd7h84tus","sandboxBuildId":"552b8813-a94c-4a11-90bb-93c79ca72a05","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 593);
INSERT INTO "events" VALUES ('b79d5eb8-292c-4ba9-ab66-2f036f704aae', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ia4vr8wbmqbiww2bpjkq2', 'sandbox.lifecycle.created', 1795973773362037, '{"id":"b79d5eb8-292c-4ba9-ab66-2f036f704aae","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.362037Z","eventCategory":"lifecycle","eventLabel":"create","eventData":null,"sandboxId":"ia4vr8wbmqbiww2bpjkq2","sandboxExecutionId":"e9c95d6c-a70e-4872-9b5a-33bc79865d42","sandboxTemplateId":"base0000000000000000","sandboxBuildId":"00000000-0000-0000-0000-000000000001","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 454);
INSERT INTO "events" VALUES ('045fa1a7-8034-472d-a099-76566582e20d', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ia4vr8wbmqbiww2bpjkq2', 'sandbox.lifecycle.killed', 1795973773383144, '{"id":"045fa1a7-8034-472d-a099-76566582e20d","version":"v2","type":"sandbox.lifecycle.killed","timestamp":"2026-11-29T17:36:13.383144Z","eventCategory":"lifecycle","eventLabel":"kill","eventData":{"execution":{"execution_time":21,"memory_mb":512,"started_at":"2026-11-29T17:36:13.362029Z","vcpu_count":2},"kill_reason":"request"},"sandboxId":"ia4vr8wbmqbiww2bpjkq2","sandboxExecutionId":"e9c95d6c-a70e-4872-9b5a-33bc79865d42","sandboxTemplateId":"base0000000000000000","sandboxBuildId":"00000000-0000-0000-0000-000000000001","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 580);
INSERT INTO "events" VALUES ('b022cb60-1d09-43d6-8eb8-660bb7efa392', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 'sandbox.lifecycle.checkpointed', 1795973773408502, '{"id":"b022cb60-1d09-43d6-8eb8-660bb7efa392","version":"v2","type":"sandbox.lifecycle.checkpointed","timestamp":"2026-11-29T17:36:13.408502Z","eventCategory":"lifecycle","eventLabel":"checkpoint","eventData":{"sandbox_metadata":{"is":"running"},"snapshot_mode":"full"},"sandboxId":"if7dao6vp9p20ajjglm5v","sandboxExecutionId":"c982983b-7d3c-450d-a3fe-0bdaba87fd38","sandboxTemplateId":"base0000000000000000","sandboxBuildId":"00000000-0000-0000-0000-000000000001","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 519);
INSERT INTO "events" VALUES ('225842b4-eac8-4622-bb9f-013938a6fbf7', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 'sandbox.lifecycle.checkpointed', 1795973773457707, '{"id":"225842b4-eac8-4622-bb9f-013938a6fbf7","version":"v2","type":"sandbox.lifecycle.checkpointed","timestamp":"2026-11-29T17:36:13.457707Z","eventCategory":"lifecycle","eventLabel":"checkpoint","eventData":{"sandbox_metadata":{"is":"running"},"snapshot_mode":"filesystem"},"sandboxId":"if7dao6vp9p20ajjglm5v","sandboxExecutionId":"c982983b-7d3c-450d-a3fe-0bdaba87fd38","sandboxTemplateId":"base0000000000000000","sandboxBuildId":"00000000-0000-0000-0000-000000000001","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 525);
INSERT INTO "events" VALUES ('d16b064d-d759-4a87-87e8-04bdbed3912a', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'idlh3r05xehaxq9pgio11', 'sandbox.lifecycle.created', 1795973773489085, '{"id":"d16b064d-d759-4a87-87e8-04bdbed3912a","version":"v2","type":"sandbox.lifecycle.created","timestamp":"2026-11-29T17:36:13.489085Z","eventCategory":"lifecycle","eventLabel":"create","eventData":{"sandbox_metadata":{"is":"copy"}},"sandboxId":"idlh3r05xehaxq9pgio11","sandboxExecutionId":"f44da75c-6143-4062-b226-d2fa00f1fd4e","sandboxTemplateId":"swzatvrk1od9ixlgx08g","sandboxBuildId":"18769353-76eb-49ee-9e30-29ed6943bf1a","sandboxTeamId":"8af21c07-c2e4-4711-9171-f49279a77fd6"}', 484);
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    events TEXT NOT NULL,
    secret TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
INSERT INTO "webhooks" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'hook', 'http://127.0.0.1:9/hook', 1, '["sandbox.lifecycle.created","sandbox.lifecycle.killed"]', 'of-a-test', 1795973772880157);
CREATE TABLE webhook_queue (
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (webhook_id, event_id)
);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', '21d560d6-f392-4338-b9b9-dc026f1006a1', 1, 1795973783182235);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'e2047d4f-27a5-4be0-a22f-c8d310bca814', 1, 1795973783206726);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', '17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3', 1, 1795973783268357);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'e8adc827-5619-42bb-a2ce-561f78b673b1', 1, 1795973783314083);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'b79d5eb8-292c-4ba9-ab66-2f036f704aae', 1, 1795973783380542);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', '045fa1a7-8034-472d-a099-76566582e20d', 1, 1795973783394624);
INSERT INTO "webhook_queue" VALUES ('71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'd16b064d-d759-4a87-87e8-04bdbed3912a', 1, 1795973783493376);
CREATE TABLE webhook_attempts (
    id TEXT PRIMARY KEY NOT NULL,
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    is_success BOOLEAN NOT NULL,
    duration_ms BIGINT NOT NULL,
    timestamp BIGINT NOT NULL,
    attempt TEXT NOT NULL
);
INSERT INTO "webhook_attempts" VALUES ('a0a64451-531f-4ff7-bbbb-4252c240f9d7', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', '21d560d6-f392-4338-b9b9-dc026f1006a1', 'sandbox.lifecycle.created', 0, 0, 1795973773180169, '{"id":"a0a64451-531f-4ff7-bbbb-4252c240f9d7","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"21d560d6-f392-4338-b9b9-dc026f1006a1","sandboxId":"if7dao6vp9p20ajjglm5v","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":0,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"sandbox_metadata\":{\"is\":\"running\"}},\"event_label\":\"create\",\"id\":\"21d560d6-f392-4338-b9b9-dc026f1006a1\",\"sandbox_build_id\":\"00000000-0000-0000-0000-000000000001\",\"sandbox_execution_id\":\"c982983b-7d3c-450d-a3fe-0bdaba87fd38\",\"sandbox_id\":\"if7dao6vp9p20ajjglm5v\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"base0000000000000000\",\"timestamp\":\"2026-11-29T17:36:13.161962Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"a0a64451-531f-4ff7-bbbb-4252c240f9d7\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.180169Z"}');
INSERT INTO "webhook_attempts" VALUES ('c22c9a1e-4610-4b94-9e4e-c6586e0367f9', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'e2047d4f-27a5-4be0-a22f-c8d310bca814', 'sandbox.lifecycle.created', 0, 1, 1795973773205417, '{"id":"c22c9a1e-4610-4b94-9e4e-c6586e0367f9","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"e2047d4f-27a5-4be0-a22f-c8d310bca814","sandboxId":"ijedci26s2v8qvkmsdjax","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":1,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"sandbox_metadata\":{\"is\":\"frozen\"}},\"event_label\":\"create\",\"id\":\"e2047d4f-27a5-4be0-a22f-c8d310bca814\",\"sandbox_build_id\":\"552b8813-a94c-4a11-90bb-93c79ca72a05\",\"sandbox_execution_id\":\"5c14d77e-f349-4d78-853a-c393ed695f0f\",\"sandbox_id\":\"ijedci26s2v8qvkmsdjax\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"8ig4ma6q5cpbd7h84tus\",\"timestamp\":\"2026-11-29T17:36:13.181945Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"c22c9a1e-4610-4b94-9e4e-c6586e0367f9\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.205417Z"}');
INSERT INTO "webhook_attempts" VALUES ('8d1a28cb-540e-496c-81ae-797135a29744', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', '17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3', 'sandbox.lifecycle.created', 0, 0, 1795973773267707, '{"id":"8d1a28cb-540e-496c-81ae-797135a29744","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3","sandboxId":"ixf7fwyi4xlj1spztskg9","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":0,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"sandbox_metadata\":{\"is\":\"files\"}},\"event_label\":\"create\",\"id\":\"17fc8c5e-0c9c-4d2b-b28d-1ce0b496b7f3\",\"sandbox_build_id\":\"552b8813-a94c-4a11-90bb-93c79ca72a05\",\"sandbox_execution_id\":\"f8856e23-b35c-4e79-9155-59e5a8a40a76\",\"sandbox_id\":\"ixf7fwyi4xlj1spztskg9\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"8ig4ma6q5cpbd7h84tus\",\"timestamp\":\"2026-11-29T17:36:13.264584Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"8d1a28cb-540e-496c-81ae-797135a29744\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.267707Z"}');
INSERT INTO "webhook_attempts" VALUES ('6b7bfde4-13eb-44e7-b9cc-5a93152ff46a', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'e8adc827-5619-42bb-a2ce-561f78b673b1', 'sandbox.lifecycle.created', 0, 0, 1795973773313440, '{"id":"6b7bfde4-13eb-44e7-b9cc-5a93152ff46a","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"e8adc827-5619-42bb-a2ce-561f78b673b1","sandboxId":"il9hkde5srx9ii84j2ha6","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":0,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"sandbox_metadata\":{\"is\":\"parked\"}},\"event_label\":\"create\",\"id\":\"e8adc827-5619-42bb-a2ce-561f78b673b1\",\"sandbox_build_id\":\"552b8813-a94c-4a11-90bb-93c79ca72a05\",\"sandbox_execution_id\":\"da717af4-3a68-4cf8-af1c-0a69580c0714\",\"sandbox_id\":\"il9hkde5srx9ii84j2ha6\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"8ig4ma6q5cpbd7h84tus\",\"timestamp\":\"2026-11-29T17:36:13.308155Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"6b7bfde4-13eb-44e7-b9cc-5a93152ff46a\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.31344Z"}');
INSERT INTO "webhook_attempts" VALUES ('6b433cfb-6976-43c9-a2f1-eab7e6a4d094', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'b79d5eb8-292c-4ba9-ab66-2f036f704aae', 'sandbox.lifecycle.created', 0, 1, 1795973773378927, '{"id":"6b433cfb-6976-43c9-a2f1-eab7e6a4d094","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"b79d5eb8-292c-4ba9-ab66-2f036f704aae","sandboxId":"ia4vr8wbmqbiww2bpjkq2","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":1,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":null,\"event_label\":\"create\",\"id\":\"b79d5eb8-292c-4ba9-ab66-2f036f704aae\",\"sandbox_build_id\":\"00000000-0000-0000-0000-000000000001\",\"sandbox_execution_id\":\"e9c95d6c-a70e-4872-9b5a-33bc79865d42\",\"sandbox_id\":\"ia4vr8wbmqbiww2bpjkq2\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"base0000000000000000\",\"timestamp\":\"2026-11-29T17:36:13.362037Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"6b433cfb-6976-43c9-a2f1-eab7e6a4d094\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.378927Z"}');
INSERT INTO "webhook_attempts" VALUES ('395bcfbb-5fc8-4cd9-ae75-e8afe02ebdad', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', '045fa1a7-8034-472d-a099-76566582e20d', 'sandbox.lifecycle.killed', 0, 3, 1795973773391176, '{"id":"395bcfbb-5fc8-4cd9-ae75-e8afe02ebdad","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"045fa1a7-8034-472d-a099-76566582e20d","sandboxId":"ia4vr8wbmqbiww2bpjkq2","eventType":"sandbox.lifecycle.killed","status":"failed","durationMs":3,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"execution\":{\"execution_time\":21,\"memory_mb\":512,\"started_at\":\"2026-11-29T17:36:13.362029Z\",\"vcpu_count\":2},\"kill_reason\":\"request\"},\"event_label\":\"kill\",\"id\":\"045fa1a7-8034-472d-a099-76566582e20d\",\"sandbox_build_id\":\"00000000-0000-0000-0000-000000000001\",\"sandbox_execution_id\":\"e9c95d6c-a70e-4872-9b5a-33bc79865d42\",\"sandbox_id\":\"ia4vr8wbmqbiww2bpjkq2\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"base0000000000000000\",\"timestamp\":\"2026-11-29T17:36:13.383144Z\",\"type\":\"sandbox.lifecycle.killed\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"395bcfbb-5fc8-4cd9-ae75-e8afe02ebdad\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.391176Z"}');
INSERT INTO "webhook_attempts" VALUES ('b13a7136-e0f8-426d-92ee-9100f42bf14e', '71ce2441-0b5d-453f-8d0b-275e878e4f1f', 'd16b064d-d759-4a87-87e8-04bdbed3912a', 'sandbox.lifecycle.created', 0, 0, 1795973773492446, '{"id":"b13a7136-e0f8-426d-92ee-9100f42bf14e","teamId":"8af21c07-c2e4-4711-9171-f49279a77fd6","webhookId":"71ce2441-0b5d-453f-8d0b-275e878e4f1f","eventId":"d16b064d-d759-4a87-87e8-04bdbed3912a","sandboxId":"idlh3r05xehaxq9pgio11","eventType":"sandbox.lifecycle.created","status":"failed","durationMs":0,"requestBody":"{\"event_category\":\"lifecycle\",\"event_data\":{\"sandbox_metadata\":{\"is\":\"copy\"}},\"event_label\":\"create\",\"id\":\"d16b064d-d759-4a87-87e8-04bdbed3912a\",\"sandbox_build_id\":\"18769353-76eb-49ee-9e30-29ed6943bf1a\",\"sandbox_execution_id\":\"f44da75c-6143-4062-b226-d2fa00f1fd4e\",\"sandbox_id\":\"idlh3r05xehaxq9pgio11\",\"sandbox_team_id\":\"8af21c07-c2e4-4711-9171-f49279a77fd6\",\"sandbox_template_id\":\"swzatvrk1od9ixlgx08g\",\"timestamp\":\"2026-11-29T17:36:13.489085Z\",\"type\":\"sandbox.lifecycle.created\",\"version\":\"v2\"}","requestHeaders":"{\"content-type\":\"application/json\",\"e2b-delivery-id\":\"b13a7136-e0f8-426d-92ee-9100f42bf14e\",\"e2b-signature-version\":\"v1\",\"e2b-webhook-id\":\"71ce2441-0b5d-453f-8d0b-275e878e4f1f\",\"user-agent\":\"sandcove/0.2.0\"}","requestUrl":"http://127.0.0.1:9/hook","responseBody":null,"responseHeaders":null,"responseHttpStatusCode":null,"errorClass":"transport_error","errorMessage":"Connection refused (os error 111)","timestamp":"2026-11-29T17:36:13.492446Z"}');
CREATE TABLE team_metrics (
    team_id TEXT NOT NULL REFERENCES teams (id),
    timestamp BIGINT NOT NULL,
    concurrent BIGINT NOT NULL,
    starts BIGINT NOT NULL,
    PRIMARY KEY (team_id, timestamp)
);
CREATE TABLE sandbox_logs (
    id INTEGER PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    entry TEXT NOT NULL
);
INSERT INTO "sandbox_logs" VALUES (1, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ijedci26s2v8qvkmsdjax', 1795973773195676, '{"timestamp":"2026-11-29T17:36:13.195676Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (2, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ijedci26s2v8qvkmsdjax', 1795973773244741, '{"timestamp":"2026-11-29T17:36:13.244741Z","level":"info","message":"sandbox paused","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (3, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'il9hkde5srx9ii84j2ha6', 1795973773310199, '{"timestamp":"2026-11-29T17:36:13.310199Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (4, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'il9hkde5srx9ii84j2ha6', 1795973773343278, '{"timestamp":"2026-11-29T17:36:13.343278Z","level":"info","message":"sandbox paused","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (5, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'il9hkde5srx9ii84j2ha6', 1795973773354502, '{"timestamp":"2026-11-29T17:36:13.354502Z","level":"info","message":"memory of the paused sandbox stored on disk, 7 MiB","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (6, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ixf7fwyi4xlj1spztskg9', 1795973773266155, '{"timestamp":"2026-11-29T17:36:13.266155Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (7, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ixf7fwyi4xlj1spztskg9', 1795973773296140, '{"timestamp":"2026-11-29T17:36:13.29614Z","level":"info","message":"sandbox paused, only its files are kept","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (8, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'idlh3r05xehaxq9pgio11', 1795973773490208, '{"timestamp":"2026-11-29T17:36:13.490208Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (9, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 1795973773172183, '{"timestamp":"2026-11-29T17:36:13.172183Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (10, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 1795973773408480, '{"timestamp":"2026-11-29T17:36:13.40848Z","level":"info","message":"snapshot taken, with 7 MiB of memory","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (11, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'if7dao6vp9p20ajjglm5v', 1795973773457684, '{"timestamp":"2026-11-29T17:36:13.457684Z","level":"info","message":"snapshot taken","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (12, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ia4vr8wbmqbiww2bpjkq2', 1795973773374422, '{"timestamp":"2026-11-29T17:36:13.374422Z","level":"info","message":"sandbox started","fields":{"logger":"sandcove"}}');
INSERT INTO "sandbox_logs" VALUES (13, '8af21c07-c2e4-4711-9171-f49279a77fd6', 'ia4vr8wbmqbiww2bpjkq2', 1795973773385007, '{"timestamp":"2026-11-29T17:36:13.385007Z","level":"info","message":"sandbox ended, reason: request","fields":{"logger":"sandcove"}}');
CREATE TABLE sandbox_readings (
    id INTEGER PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    readings TEXT NOT NULL
);
CREATE TABLE template_tag_assignments (
    template_id TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    build_id TEXT NOT NULL REFERENCES template_builds (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag, created_at)
);
INSERT INTO "template_tag_assignments" VALUES ('base0000000000000000', 'default', '00000000-0000-0000-0000-000000000001', 1795973772838034);
INSERT INTO "template_tag_assignments" VALUES ('8ig4ma6q5cpbd7h84tus', 'v1', '552b8813-a94c-4a11-90bb-93c79ca72a05', 1795973772933012);
INSERT INTO "template_tag_assignments" VALUES ('8ig4ma6q5cpbd7h84tus', 'prod', '552b8813-a94c-4a11-90bb-93c79ca72a05', 1795973772968413);
INSERT INTO "template_tag_assignments" VALUES ('46cj3445jnn9xg3jzd7p', 'default', 'a774d988-c5b7-4d51-96b3-2a59a73fe908', 1795973773043410);
INSERT INTO "template_tag_assignments" VALUES ('swzatvrk1od9ixlgx08g', 'default', '18769353-76eb-49ee-9e30-29ed6943bf1a', 1795973773411489);
INSERT INTO "template_tag_assignments" VALUES ('vr8n2f51tsbjud8r4xn4', 'default', 'b9bfa175-8681-484b-a344-f64916e68e38', 1795973773458507);
CREATE TABLE step_cache (
    team_id TEXT NOT NULL REFERENCES teams (id),
    key TEXT NOT NULL,
    -- Name of the snapshot; none when the files are still those of the base.
    snapshot TEXT,
    layers TEXT NOT NULL,
    context TEXT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, key)
);
INSERT INTO "step_cache" VALUES ('8af21c07-c2e4-4711-9171-f49279a77fd6', 'f40c7b8e69ff8ed5ee4f5f2399864146390c0e70c4246d63be29fc00955883b6', 's-06e8fce9e22c45669043e16ba6cb19c6', '["top","bottom"]', '{"user":"user","home":"/home/user","workdir":"/home/user","env":{},"interpreter":null}', 1795973773022280);
INSERT INTO "step_cache" VALUES ('8af21c07-c2e4-4711-9171-f49279a77fd6', '58c2d310963d6cdffeb8d6ba2c72ee078cafb1e847015d172a20fd0dbfb3eee4', 's-06e8fce9e22c45669043e16ba6cb19c6', '["top","bottom"]', '{"user":"user","home":"/home/user","workdir":"/home/user","env":{"A":"1"},"interpreter":null}', 1795973773035428);
CREATE TABLE image_cache (
    team_id TEXT NOT NULL REFERENCES teams (id),
    reference TEXT NOT NULL,
    layer TEXT NOT NULL,
    env TEXT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, reference)
);
CREATE TABLE secrets (
    id TEXT PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    sealed TEXT NOT NULL,
    version BIGINT NOT NULL,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (team_id, name)
);
INSERT INTO "secrets" VALUES ('sec_sa9cvuqgyq9gjlty8mjw', '8af21c07-c2e4-4711-9171-f49279a77fd6', 'model-key', 's1.cbH0CPsj.JrJFEdaz55OVql9SDY_PeAq6iPPuHZDolCLsZMXIeExTRi8S8A', 1, '{"for":"tests"}', 1795973772898649, 1795973772898649);
CREATE TABLE unused_started (snapshot TEXT PRIMARY KEY);
CREATE INDEX api_keys_team ON api_keys (team_id);
CREATE UNIQUE INDEX templates_name ON templates (COALESCE(team_id, ''), name);
CREATE INDEX template_builds_template ON template_builds (template_id);
CREATE INDEX access_tokens_team ON access_tokens (team_id);
CREATE INDEX events_team ON events (team_id, timestamp);
CREATE INDEX events_sandbox ON events (sandbox_id, timestamp);
CREATE INDEX webhooks_team ON webhooks (team_id);
CREATE INDEX webhook_queue_due ON webhook_queue (due_at);
CREATE INDEX webhook_attempts_webhook ON webhook_attempts (webhook_id, timestamp);
CREATE INDEX webhook_attempts_event ON webhook_attempts (event_id);
CREATE INDEX webhook_queue_event ON webhook_queue (event_id);
CREATE INDEX sandbox_logs_by_sandbox ON sandbox_logs (sandbox_id, id);
CREATE INDEX sandbox_logs_by_time ON sandbox_logs (timestamp);
CREATE INDEX sandbox_readings_by_sandbox ON sandbox_readings (sandbox_id, timestamp);
CREATE INDEX sandbox_readings_by_time ON sandbox_readings (timestamp);
CREATE INDEX events_size ON events (team_id, timestamp, bytes);
CREATE INDEX idempotency_keys_age ON idempotency_keys (team_id, created_at);
CREATE INDEX template_builds_status ON template_builds (status);
CREATE INDEX template_tags_build ON template_tags (build_id);
CREATE UNIQUE INDEX templates_global_name ON templates (global_name);
CREATE INDEX template_tag_assignments_build ON template_tag_assignments (build_id);
CREATE INDEX step_cache_snapshot ON step_cache (snapshot);
CREATE INDEX step_cache_age ON step_cache (used_at);
CREATE TRIGGER template_builds_started AFTER DELETE ON template_builds
WHEN json_extract(OLD.record, '$.started.snapshot') IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO unused_started (snapshot) VALUES (json_extract(OLD.record, '$.started.snapshot'));
END;

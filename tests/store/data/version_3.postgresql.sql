CREATE TABLE public.bench_case (
    id character varying(16) NOT NULL,
    op text NOT NULL,
    phase character varying(16) NOT NULL,
    params text NOT NULL,
    wrt text NOT NULL
);
CREATE VIEW public.cases AS
 SELECT bench_case.id,
    bench_case.op,
    bench_case.phase,
    bench_case.params,
    bench_case.wrt
   FROM public.bench_case;
CREATE TABLE public.environment (
    id character varying(16) NOT NULL,
    facts text NOT NULL
);
CREATE VIEW public.environments AS
 SELECT e.id,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'machine'::text) AS machine,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'cpu'::text) AS cpu,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'gpu'::text) AS gpu,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'device'::text) AS device,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'backend'::text) AS backend,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'python'::text) AS python,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'torch'::text) AS torch,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'opmark'::text) AS opmark,
    ((replace(e.facts, '\u0000'::text, ''::text))::json ->> 'system'::text) AS system,
    e.facts
   FROM public.environment e;
CREATE TABLE public.finding (
    number integer NOT NULL,
    kind character varying(32) NOT NULL,
    chip text NOT NULL,
    started character varying(40) NOT NULL,
    body text NOT NULL
);
CREATE SEQUENCE public.finding_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.finding_number_seq OWNED BY public.finding.number;
CREATE VIEW public.findings AS
 SELECT finding.number,
    finding.kind,
    finding.chip,
    finding.started,
    finding.body
   FROM public.finding;
CREATE TABLE public.opmark_meta (
    key character varying(32) NOT NULL,
    value text
);
CREATE TABLE public.record (
    number integer NOT NULL,
    run_id character varying(48) NOT NULL,
    task_id character varying(16) NOT NULL,
    case_id character varying(16) NOT NULL,
    op text NOT NULL,
    phase character varying(16) NOT NULL,
    backend text NOT NULL,
    status character varying(16) NOT NULL,
    environment_id character varying(16) NOT NULL,
    started character varying(40) NOT NULL,
    duration double precision NOT NULL,
    body bytea NOT NULL,
    samples bytea NOT NULL,
    implementation text DEFAULT ''::text NOT NULL,
    threads integer DEFAULT 0 NOT NULL,
    process integer DEFAULT 0 NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    figures text DEFAULT '[]'::text NOT NULL
);
CREATE SEQUENCE public.record_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.record_number_seq OWNED BY public.record.number;
CREATE TABLE public.run (
    number integer NOT NULL,
    id character varying(48) NOT NULL,
    started character varying(40) NOT NULL,
    plan character varying(16) NOT NULL,
    tasks integer NOT NULL,
    label text NOT NULL,
    command text NOT NULL,
    version character varying(32) NOT NULL,
    session text DEFAULT ''::text NOT NULL,
    revision text DEFAULT ''::text NOT NULL
);
CREATE TABLE public.run_note (
    number integer NOT NULL,
    run_id character varying(48) NOT NULL,
    kind character varying(16) NOT NULL,
    text text NOT NULL,
    noted character varying(40) NOT NULL
);
CREATE VIEW public.records AS
 SELECT r.number,
    r.run_id,
    r.case_id,
    r.op,
    r.phase,
    r.backend,
    r.implementation,
    r.threads,
    r.process,
    r.status,
    r.reason,
    r.environment_id,
    r.started,
    r.duration,
    c.params,
    COALESCE(( SELECT n.text
           FROM public.run_note n
          WHERE (((n.run_id)::text = (u.id)::text) AND ((n.kind)::text = 'label'::text))
          ORDER BY n.number DESC
         LIMIT 1), u.label) AS label,
    u.started AS run_started
   FROM ((public.record r
     JOIN public.run u ON (((u.id)::text = (r.run_id)::text)))
     LEFT JOIN public.bench_case c ON (((c.id)::text = (r.case_id)::text)));
CREATE VIEW public.results AS
 SELECT r.number,
    r.run_id,
    r.case_id,
    r.op,
    r.phase,
    r.backend,
    r.implementation,
    r.threads,
    r.process,
    r.status,
    r.reason,
    r.environment_id,
    r.started,
    r.duration,
    c.params,
    COALESCE(( SELECT n.text
           FROM public.run_note n
          WHERE (((n.run_id)::text = (u.id)::text) AND ((n.kind)::text = 'label'::text))
          ORDER BY n.number DESC
         LIMIT 1), u.label) AS label,
    u.started AS run_started,
    (m.value ->> 0) AS quantity,
    (m.value ->> 1) AS cache,
    (m.value ->> 2) AS timer,
    ((m.value ->> 3))::bigint AS calls,
    ((m.value ->> 4))::bigint AS samples,
    ((m.value ->> 5))::double precision AS median,
    ((m.value ->> 6))::double precision AS low,
    ((m.value ->> 7))::double precision AS high,
    ((m.value ->> 8))::double precision AS cycles,
    (m.value ->> 9) AS cautions
   FROM (((public.record r
     JOIN public.run u ON (((u.id)::text = (r.run_id)::text)))
     LEFT JOIN public.bench_case c ON (((c.id)::text = (r.case_id)::text)))
     LEFT JOIN LATERAL json_array_elements((replace(r.figures, '\u0000'::text, ''::text))::json) m(value) ON (true));
CREATE SEQUENCE public.run_note_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.run_note_number_seq OWNED BY public.run_note.number;
CREATE SEQUENCE public.run_number_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.run_number_seq OWNED BY public.run.number;
CREATE VIEW public.runs AS
 SELECT u.number,
    u.id,
    u.started,
    COALESCE(( SELECT n.text
           FROM public.run_note n
          WHERE (((n.run_id)::text = (u.id)::text) AND ((n.kind)::text = 'label'::text))
          ORDER BY n.number DESC
         LIMIT 1), u.label) AS label,
    COALESCE(( SELECT n.text
           FROM public.run_note n
          WHERE (((n.run_id)::text = (u.id)::text) AND ((n.kind)::text = 'description'::text))
          ORDER BY n.number DESC
         LIMIT 1), ''::text) AS description,
    u.tasks,
    ( SELECT count(*) AS count
           FROM public.record r
          WHERE ((r.run_id)::text = (u.id)::text)) AS records,
    u.command,
    u.version,
    u.revision,
    u.session,
    u.plan
   FROM public.run u;
ALTER TABLE ONLY public.finding ALTER COLUMN number SET DEFAULT nextval('public.finding_number_seq'::regclass);
ALTER TABLE ONLY public.record ALTER COLUMN number SET DEFAULT nextval('public.record_number_seq'::regclass);
ALTER TABLE ONLY public.run ALTER COLUMN number SET DEFAULT nextval('public.run_number_seq'::regclass);
ALTER TABLE ONLY public.run_note ALTER COLUMN number SET DEFAULT nextval('public.run_note_number_seq'::regclass);
INSERT INTO public.bench_case VALUES ('3e34f44f9977dc05', 'softmax', 'forward', '{"shape":[8,8],"axis":-1,"dtype":"float32"}', '[]');
INSERT INTO public.bench_case VALUES ('923d75c460db5ecf', 'add', 'forward', '{"shape":[8,8],"y":"same","dtype":"float32"}', '[]');
INSERT INTO public.bench_case VALUES ('69f4824fc75471be', 'fault', 'forward', '{"kind":"none","n":4096,"dtype":"float32"}', '[]');
INSERT INTO public.bench_case VALUES ('1d2a77f1e464dbb9', 'add', 'forward', '{"shape":[16],"y":"same","dtype":"float32"}', '[]');
INSERT INTO public.bench_case VALUES ('24e6258bec158e7a', 'add', 'backward', '{"shape":[16],"y":"same","dtype":"float32"}', '[]');
INSERT INTO public.environment VALUES ('2de48bfafdd0ab28', '{"machine":"vm","system":"Linux 6.18.44-fc-v490","python":"3.11.7","cpu":"AMD EPYC","cores":2,"affinity":[0,1],"memory":25276518400,"governor":null,"max_mhz":null,"opmark":"0.6.0","backend":"numpy-cpu","interpreter":"/usr/bin/python3","variables":{},"numpy":"2.4.6","scipy":"1.17.1","blas":"scipy-openblas 0.3.31.188.0","device":"cpu","threads":2,"sensors":"the kernel tells neither clock nor energy (usual in a virtual machine)"}');
INSERT INTO public.finding VALUES (1, 'peaks', 'Fast 9000', '2030', '{"flops":1}');
INSERT INTO public.finding VALUES (2, 'noise', 'null on Fast 9000', '2031', '{"floor":[0.01]}');
INSERT INTO public.opmark_meta VALUES ('version', '3');
INSERT INTO public.record VALUES (1, '20261115-213445-21ff', '13be248b2700c31b', '923d75c460db5ecf', 'add', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:45.704+00:00', 0.2971550450020004, '\x035866f437e3cdedd85d6e83300c07f0abec001372fc11dbbb0d34e571f77f9c0313446da1d556346d1a6f2010c844fefde30dc71da9a89c384319e47c1ae37ba6c6d39709e42bd4edd5e2edb57f7efecc1dd98f63fc2ec0ff54fe3c95b3e43383aead95d8399b3be54c1a9d50b3dca21309d734d3d8294ca0e4aaacec5c9bfe2356dedc1add9f3eb1d54d771d826d4ea0ba76deb3e2f9cc2959e4e57df453f2ca3e63da769f495fdeafd48f2ac7d5a3cd7f9af244c4cc98012865a3c072253f9af442be069bb17a1af6310e8de7625ae2ec91d40e4b0179217f8e019282efcb0c2095e9cb0060c9ebad0bff6c28605623cb9fd73f8ad6d01f67bfc47d2c67b661ecc752a01fd0767200f11b4ba7c05fce01e89a4480655ac71055fa662cf8009de49494', '\x02480d00ff0700f801000000a50100005a28dd94cfaf88f5a8ace27cc90a857a1a71b4ece7259676096a2a08aa2076aa0b6f1caf3e653ede8648b06ecac6a2be7ec906666f5e80a6c6b251aa882995bd47e8e6c5b2bd8f244fd523c030e81cb89a840436a64c2e0ed892c830580e06ae7af46614361c42d6ef445c7abe1274da0cbe064626e17a2aa0dcafca2e7c282e5024f490e49e17ebe0ebe2624b8d9416e8879de279c3cc4e06fc8c4e1d2b1856e05d77875f56aefa8bcc3f6f98e21e65c062f109d4d6298409c9918784a6d4cd34fc002d8f1c466ed4c40a52588ca4ac580ebef1b48e287c84425a92765476e958cb0aeab44638ce70844c0af257b878d2f2f060408a70ea6c0ed894eae4aaa416bc30efa458a26e2cb6283a58b85c722e060ec57ab0305c2cda4a28b402f258fe6070ceb4bc1ca94a409414960c0a7a140bb2e836fc50e43290f2329c66461d64327ce4523a1ecefc8a4bb4aedee2fcac12ac36b6129c4a3280ce8cfcec36289ec08c72ec125c3aea16fc0e54de4de4f064da3a826a02bc7a4cb04aae3c0c2c983e2a96e28c6094a48462b8463a4ad0161c5c1cc8c6701c8024ae600eea0cf08aaa42d83afa2abb170a06685b835ed649725e62ab7522d9ef53fc1981732abef419ece1b12a64f29e77c88ceb5e11cedbbdca7fd2621fdde5a3c4feed85512cb198e1ce577b6ed8b9625321ae53e9e1c71d8ec5dedca83ec386dcda6a4ea51e34c9d891b2a7fd146eb3e9b08d76857a7c849c93a19584ff61f1c5086d095753f3daead6da72407b523b14e53a0e3a749ac243ce5ee34fcc38756885f8a36419a7772a264b89e3027ff69083bb4934feb53a5147e50ce3a0d96ee3a97dc221327932006aeb96f59f7b38bc118e009ccbd798ff1801e46aeddaea6d44cfa8b0375be6c587145b276663586184b4e255ccb9bac6eecb4aba31205dbce2d1aae8e06cd1cd1c18c131bfc32876c59f6c9bd6c276ee7a25da23fce78c059b7a973399d6ea7dba5b49b2e2b49610e934325d037ebb956629ec2625b21678029380424c123f4861a5b3deeadd4e699a46f63ece9c12e48a641d106f982dbd53890280b40fe62431d682daff50242b1cc773c1e66a23e46ecd7763c5d265f962c37cdc059954ac27ea999c292be69120e8baa8100946590775533c0c3cb0db74c8a415d6b2d86327094e40b0f0c7d8fa73e17979f424b06757fd118923aca5227c4f267b68f5a570b78113a3e6c5080323fde7101d2de3d6b7514f9ba7d9dcccde34fe9e234dc01b05c58f4229fbdca5424175b6a6f46cd810e896658377fe59b2ee65f67d3bbaec23cf7504deee8106aa49daf06dc471bc57d0d0d55fe6ecd0a74f0cf31c1277703d717d996f7d3b2be4c0398ebea219a2c124b70ac51b3510d057121ef223fac73a832c45be1979e4b9b0e38b15de0de98fa835b8f0d02249afe46361812941087ed069e41ecd198f88cce59e58f6361d111f5b939c0d123bf4797d5d39fc596d3f628b6771a4accf2db4474fe4677d2de259ee898beeacee96b0417b7d7dee18f02f7d6faa9c75a4e0ccb0496f65b45f6f57498b57967d157141e41b7357651dde6f7dbceeacb8e67d674112f0b0a341a25da8ec2da426be24d21baec703d6ac250d3f2b4f41718b9983ce47d29e8b9e77bd39fe5755cc94d63d966798caf9de67a877aab86f57d79347aa31a2fcc875773b1dfe096fd6c85361410c1fdad0f61bde395f2391e64b9c1d61cab004e6599c29b233a85dac1d8e1d590ab45e4b7a5be604b4230db2176d04fc180af80155f148e65f4bff11c07ff2bc85d776f450469907d356fae6afdd8b99d61713f0c2023c9234ef8ac57a9031ecd238fa81e9493f10a135b999bce8dfbd2a6f204b7afff577da88ed934df7304c7f1303cd2f528612c082838ec9bac33de5cdee41d4e044580a633804ccaabd80f2cc6bb33fb71fd2d6a2e5a286ac5786dad06dc23758c87466741bb25ebd5561f7879f6d07749c29852141011dcd835ae67853fb1dbe47daa2ea2b3f607f31f7eb6011fee4f78164130ee9df582a263ebf63cd2d5781415bb3ccdcd3fc0287cfb112826116aaffc4134471a07d9a9a2a2162e316beb3350a4e5359a305fd459591051bb8843b4ebe75b31872be8fb687010c9e738009c787de85570b09453815861c6a61fdfeee38bfd98b57169b0521cd104e0ae6e5e096b684313ae8f2e344e21608a78e6cb1a806c95e5f3998b357feb5ac88294e4f620d9a96782947c8b5199276edddd2f09265330afb147e7557001502f67e7a89fc0f0114124947c28f3e7f31024c07b4640452fe8b8f154b7fb81c1711f65ab84ad813bf2dcb55337259a190a1dbbca6b9e4efee10ba164b9793674412fcbb9818d7b54b23ae6f0c6e12a06581bcf3a0ae3f8115795abe59a17678ab1e4173543c7576d9feea6f2d4736bc26a09c5c527aac5859786685a2d741501e5dddd5554c775154ef892c15b1be27ca75aae3002af6f8a9e283097c6b92021b9151fa68d1c8d343500916fce0a779659271d6792a2dced3a6dcc8e0c217e23f9de255f02414631a4bcc73ccab2f0b8423de5162f9e34f49f2da0ef53b8b96eb14fec94d2b05fceef12ff3f25a1910c52d7143cf864506291a634aa10769b0647e3f5a878e54b186c57033a3e7ffddad5f73338336c48845350e00509b13fabdbb6f6a563d77202df718b59886a52496cdc9c42475afe868b50f7e3e715f0fcaa45f3012b1dc829bf77049659d609bcde0fae2f9ea91c9b8e2e09dd8649d8829246a0717b518968c43a9c4e8f2eb17d63d3f8375c2995ee46770b2f18b196ec32d68a0273fed87c6217fa0ac43f884b685387e520ca2ccea1941f6ec18cf7d778f9db32baded50f94f13411835468b86a082603d40544045118978574be3011e21827248a8a8016230314131a1268856a420da1de468cb76767776590ad878440e51906084a035040b1a0d44a5461111e391a212159c59e2ffe00fbedd999df7be37dffbb2919939471574c8e99cd0fa03b6574e95b191ff71aab2ba21a5d75539991d982cabf0bc7eeffd844ba3bfca7fcf365a23ac5d8bbd9bef405ff9bc4c65786746548902782aba1302ea920a7dd0b38ddecf326c239db23bbd97536eac3ff6666418ca1337e555d1c6e3f69b9961c985a73d3274a545692b8ef82f8909d92477cd523c6cc99ae965aacc5bd9d89caef35bf1c0b72a37e67e6bb75afbf3cbde13f5fde2d7e185277e6d18b3847bb9f4c5b7a83eeff66d996a1fde9cded3a0d955ab6e72a8076d33f8176fdfd4e86af65f1346741dca29a7e88a82834fc527a5aafc934cf6ba7d5bd53667e8a7b3f26b9d8ae8c15af9b7c0c7ed1b0c6cf6d7017fd59068ebd89e51e73f9afdf9ea56741e461d6ab769cf3e09ae0bafcab5cc0d546dec6f8d7e2a03c5764d5adbea9d71899aeaa0338943dad88236e7857483d2a9e93d1499be236f3075fad88f04079d5add77511de61de7d8e2de67e87773047389d1c93e6d69b75f8eb92d887da46bf295b97c50d4a678fa2d5df37bd6b7b29c50fb74b7e74d136b52964df230bb2b4adc6f66ce591414e0b487e44ceb4aebc9dfb6d4b1b33e6ad9b6b5b2b03991f95a2ff74e4d49c4b9c0e6a402d7f8ee2d6ef2e58def5ea355d92b87b4b77273bfdf6dea393e7f604fd69e8f970e1f9b1a14e8d30f1a43023c2c0bc218466420e4048183e588353382d52a56e08fc03048e4cc10220183e13896c5b64a41e0217f852b47b80279c4a37201312c429411965114a5c70fd9a56522547a313701ac16930ad68a68789543e346c96ba0699a2f65cc0c6419294510ac828524135858968638048988410cc30b57f044665885a0c020c4219e15398ee548471c6946240aa39002a6cbc008fee600ca4461524c6a782e4a189f16941001c32c190110f1199701310380b78a224ae4b164c08ade4463cd68c21e6cd043a4d7033d3e01aa08166211c7916bb8840981d45d123131e045f248d7f1de7aec2d25441a493a90fbc53884b420f98052fec7bfff07fe002e7a4eaf', 'numpy', 2, 0, '', '[["latency","warm","monotonic",197,421,2.322207232613324e-7,2.311547334136167e-7,2.3475879432732226e-7,null,["drifting","outliers"]]]');
INSERT INTO public.record VALUES (2, '20261115-213445-21ff', '398452076ef7bdfb', '3e34f44f9977dc05', 'softmax', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:46.012+00:00', 0.059668065994628705, '\x035866f437e3cded98cb6e833010457fa841e37979dcbf490a485d75d12efaf9bd8406938890a849944dd920404ac683f139be67382e9d68afdaa3b8dcbe91a19efdc2f3f9d17f0d0459027bbc042ad87ebfa3960d2a5b81fbe3487e91c1ffb47c3e2d47988fb43c72626cfe5d4b562d21944378899d2695a7959d25090939e1644682e5f22a565e93e824bf2ad3a980bc3d718209afefde2e07643ce402eb2159338fa46af9f70cf246b6df8de69aad84e2459349310a7867653b56e389ed197cc4c3caf704849aba8865e39407637d18efd9c0a723e2d71b15f73610f994f5832a4c98d790427b55780ae5a561f740bf5554d86434d913eca7c69d34336bf1642cb9dbe4c77800da3093005cdd6000678636298137618251674f5412de81751be8e22409cba3aed6608d62feb10493a4e2055d41eb0e1a4180fefcc8bf6ddd6b0402bd823686e2ff193f8281ce1dc3bda4c01c26677c05140bcac16da7b1ebb77ddbd276c7b1a220a2afea9064feb38290154c12722b459d230f5bcd1b9de4079067ac08', '\x02480ded50f93f94fd1a9e7178f30ad1b12b4ba92199a105598a4c683025355376b2a5b76c952523a3b164df9729fb4e240c9121b2552234638c599e596cd1826a5e52bd0fe7fc7cfe82737d3ecff7fbbdaffbbaafebfe3c500804a20a8540eaa08547111fc634353965c16f087ae6c3f4e4fee96033ffa1860adf9d95b548193d85526c4c6867e5771991012b1de82a73f5b8a1a9190e7523d45479ba5a6e2880ec6060fd57e7d1fa48e2bbab3937b112161915217268e9d8527ce2f4bce94fd9719f80cd7fbbb587149fa92e84bfbf5e5a61d4603bbd1a4e1055bd73315620966771fe890e5fd43efd0cf11a160608463edc2713fa98ccecf62b11a15f94973525bf569dd7383557478f18d5585df4388449360adfad3a161a3dd6ef00a8244ea95da40f77263b9ba20dbe8e4dad6071fe68c7f7f3f1fb43326ef8fb37898ec45ecb33e348f37bc5e603b3a84fa12b4471dc4f1829dea7000f4f6c26268e2ee9c455264cfa679ceadd296fd7769fb52a82f7a02fbdff7eeca3a417fc99a368c05af6effc11fce6c2e64163058b07e8bdf248a314d3c5f732387c6bff8c9242320abbfa88c0074a2210ae55a29961f5e318f1abb2e9bd4e67101257426ebb994564ef00c806df3cd6f7958c1860a18a1b28a173881a4914e334d293497eca32709b258f384fb5e5e82e130aceff71d05bbbf072bebe94bccbd37d397abafb0ec9161434cb5bdb4b1d87c4e638a0164cbfbda8f450d978ea932762bc5e917a53eb7343c0234b6f6bc85c0a2dcb4bbeb9ddd90672e282f8f0170b7c81aef9aff945b14c8714bf42b2c8df3c8c1acc71b66dddb27206204fd9f85c491f3a07b513978fe15ea8298e5784c1c3f1a292a6b5b5d446ad95314cbbe369116361cbfb96ce7c9cc0a60bf7c389159afab967f813d5aa8f2d2bc73e10e6e97e59e0b79b2cb6dc3df650caf6404f8e6b0689846d1b8f8c74f8e17bce71fa9cd3e374d7b4e052ff85c507e16abe910857bfb3116925819f3630da1cef09fb2377a7c3f7a8640ffa88bf1d911e7efcda6e59b11411aa4f628971f7a083398271dec15ec473973d45450ae5b2970e1f1137c7610c5890dfc84ae84052d0e96fb11a93b0963881383a25281ff290600cafa05bfa59e4fdea39d1add6d3db8182464ff84b9c9ad4d8c0a26b6ee7aaf8c22f5526d8cf7758d16c96767d27dd027ace329eb3476c4472af60aa13dc830385fa4d7c94adfa284aec2ca8ac72c3a0f610f74913cdf90036f978da4bfda8061923bfef6d8b4873eecd32027cbc59907aadf4b0d91db3076a417540cb04b9e3536e33d97865b3ef14fa5055976d85c0bf5204101ab22c9c8e3d9c17ffb9fe85b7f3893ec2ce25f682f06c785cc78301552d8af7bfbc8cde6c748d17a548eae61b002e5a6aaf9792c75a1bf9c88c6be2c24d6e3858d34c39b3b75e27c17119a1af6674c4f26d33b7dfea2edfeba4fa92f6ebc552d1449caf8b9874df097671989196f62943a417eda57d5564744b6c4b056932c851cf7240229ad8874c4b539d48ea7c9e9a116a9123ac4e8a3ae658d024fec885ff33c17c2deb73cda06787e6d8710da3b939839b2733b1fbe54a526b94a23643f09eafff56dda59e80805e0f0c83feaab9f3c7ad0b87baabfb521a53a6728da32cdbed87134f88c5c6294753db0480e91de3100b51eb09bc85f488ba5cbfde2ef26af1b8ad532d83b1fae14d5980b3bb8bfa9fba5467b1638d490b275f102f8d8a10b38c8a66e710eca7a3fa82fdebd0762dc57bf8d9797945a781e12f58b8e0778df59706024db1b958ec0a6c14b94739757d4aee53a983ae5e38019d52c2e8fd30f4aa9325b12342a7fad7fd0d6b85462d2c26538f225d839051f4e6e19d8e0f30a6dcf6ac758e1c33baa37c690ef54c299e19b938a9778beaa735b8309b815599a60cdd2aeb40069717d17aea20a22548898cd2419d62f45010e2627bebe4d51d068e862a69cfdd89254d85077feaafc01c7e4c0cdecdccfb6d6faf4542f9f5302f8bc15eb90f76afbdaa6887b24a32d08903ef509d5af1d74ddc9ba76c69293893428c5b6256cb8087d728701d5fb077a74378b2a72155e69590655811ee2fda91aa06a73f77782048e7a578eb49c5fa1fdb57b26ced50ba7739c5a4fac731cd04218d566a53a248573aee5e1c213feb9e62505cf8be4df5c9fcd8ae2862c9031d8f4071bd2795e52f496b4ff8842e2f253f1f73d8fbdb61a58f37cbdd9c8b9f1d7917aece76ac61c5cc97f0e12ddec4374353d1c499bcfcca329334c6eb72ed311f7a77987740ff433bdff6aaa0af685986dc6a57196bb3cc24b537f92dca66b8aba030336bec616e11b226a70102046ce4f095056d42c2fd67f7720deb55d01303adad0352f1bb14f582b263d72cb2e1b87b972d5cd198f1166e202c06ae19e8a7e1f1a11a655ffb42512854c2e0fa8dc5ee4222fceb97a2fc7b1d763bf5d5e0173cd1759d2f2348cf7a7f00f175fc3731f0c5d5bcd6ec56b5e5a0a3819846e2bbfcd44fec399d86486d217af4f8d1dd450a49fb3719f153946db078009342a15266c06f0b4c0ec0a4b2c063bba2d338008b4aa16f171c80cb01c16302c00c05e4381c2ec003409207802dca0c1500c031c6b69642a16ddda01b8f03f0697c800b803226f73fc6740ec001bb2c3e6f4bc4027d18dbf10c50c5e18119737cd09cc3e782e0804fd062eb0673385b25486e89b8607f163c40b3ff9620b9f5fcb835b2cd71d80c7006606f2dc5e6f3b6d605f9edd566c05c804e01193a035c92037640232e970f06834927ff8ffff507fe01d3af9fb4', 'numpy', 2, 0, '', '[["latency","warm","monotonic",21,287,8.024159778826446e-6,7.879159778826446e-6,8.190635969302636e-6,null,["noisy","drifting"]]]');
INSERT INTO public.record VALUES (3, '20261115-213445-21ff', 'c63d9ffa5de9b5a1', '923d75c460db5ecf', 'add', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:46.330+00:00', 0.2741775370086543, '\x035866f437e3cdedd75b0e82301005d00d19d3794fdd0d50d9ff129ca201028a89af44e35ffb53da92dc737bc3f18c544c3ad6545a39767dec67089ea60c20af50f79dc7d76b7e5e7ee686ecef63fc2ec07f2a5754c2a7a93c4b3e30c8b5484c56e2de8c8824c242d56370454e842c537799e8940cf1dee568fa88a05e837183ca170be30c4239675553609b7b13071cbdb1c8ec284a9f31474760cee808c49d2cc5918ac2921b40f4682c9336ec959abae0ef6313879c4913b32f6106cb91bded9bbe94d4b4e81bec101f58f744e96176d018cc842c2557e128584f2a74021f940e18', '\x02480d636460609804c466510b786ec92571352818ad601199cdd45510f769f1924b0d2716bd13b39a54776ed9be2f060d053e21f36c1e59351d71703b6038c12b836b96838e8ad08c33d7628236dc59c533cde0da36963a8fa9469f38fac452ca0a78231a82783ebcd30bf17a607440e7d7938e194d9b1c42921c34f605ac71bbb18ac5c76e4dd4fb06976b37a6ac129b3d6dc3a62e863e37816d4f9ace2c3bf74e2ae9cd5f850f379789a91d53b873d52720f0a5b96ea19d9f41e24b7d4319bb84ed7f8efefa7cc9e386b45e64818d98edd1d0cf699fe2cec9de13f9f22dc639fbeb3381ad3966d30ea9da0abd3dd1f44a7fd21d1de69d4f44f7ebfa0a1c53f9c0a97b5948e6f33b965c6351cb8beb4e89456a7c5efaf96072c5df0dbf7e587bfe5dc75b69f24e2a4aaafb89c7ed0fc7eeec3e354df497ccb5cba58f7db2785aa5764d7f697b2d5b464070f6c52f376357ffd4b9eccfb79ffdeb53ceb21f6f36acda92d8b3bc90b97f2ef3c5459327fc2e3b2ff13eae7d9f59fde2ed9f36099abc3d9aaac679dafe8684b1d352331967d67b615b37c4ea7ebf262ac55dfe2edeedd4255dc6ccf38e6daf1b4e32cf9fd0bdeac7f48d6a05657e99eb79be563fadb5987cafd2a9a09ac9648f189bdb85f313aeba9cf057e2def7c77061e955ffb2a22b8e36e71853ecb8f40f1d5eb0eef59c5f9921fcadbfdcc36ed64abe4eb17dac19bb706df48e20059dc382b757b3b5183e0cfc2bf4ba92d5f44ad8de097b3689ddb6581c3677b9e325dfbcf0a902fa579617f12d5cd9b34546a2d9686ba7c9a77a0e8f359e9a8e0a976aeb22e522e795f13d67fab3a8fec68bbcce653a7d5b3c9efc139d71ddf3eea7cb7edfce06cf550d9bcf7d9343457afe43b96395575aee2ff8fad4d6eaf9ecfd3d8b4a329cbe942e6fbe5ab33e5079f1ddd9de05ec9e1c3726842eeeed2c59125b7ac5f5e475df43cb676cfdd316772cb4e7f7fe59a9dbbe1ffbf145fd87d38aa7cebb1eaebbe97b71670e4f0cc7d375467acb4e391758cf8e9da05a5339717a8f0ca7c474f1f9fb05f2b536af12d917f4c4eee6d1af97249688e97ded085c7e53fee1a33de27aaad1b9e70ebafc0868e15bbbd9e0a2ac490c437bdbd265a2379d0a1283120cbe587c9fa323d477c3a14e263a56a24b9b736ee3cceef73b39ba0db5b29ebfbdca50aac13663a9978acea5cd3ffe71ee3977dced62e0f483127a564b5a1fab56ebedf7a89a55738c659a92d0a2581303f70edf7e07e75ea38d7b0c3f7ebe9ae6f8222f6221b72ae3bb86a28ac7b3444f7df3afd4e4e90381497d7dbd40d8d73fb1afbfafbf7f1a9006817e884c7f2f500c2202149a3801243509a416a40bac014803d54e04f27a81b86f22481ca8a617240294e8eb9dd4db0fa4416ac01490005ad937b56f72df945e2007a2a91f6c4cbfdda00300072c2545', 'numpy', 2, 1, '', '[["latency","warm","monotonic",420,146,2.2808807855474524e-7,2.2729045950712619e-7,2.294118880785548e-7,null,[]]]');
INSERT INTO public.record VALUES (4, '20261115-213445-21ff', '45763ff9ef2d4890', '3e34f44f9977dc05', 'softmax', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:46.606+00:00', 0.024034131012740545, '\x035866f437e3cdedd8cb5283500c06e017522639b91edfa69532e3ca852e7c7cff537aa195d699dedcc80a58401238f902271c9795e8a03a20b8e85fc910cfbaf17cbc0f9f4d9039d8f32911c1e2eb0db13c23b233b8df4ff25f0dfed7f28796fc682d47cc472d0f666241bf2651f188f58eda1c9ecc3183a755e64cabe95a245b67bcd8ca420d4b1639ada5838f792d291ea1e5ed7cb46875a65a452350f9a996e86f3b2d03e260ccdb8ab999e446323773dc2dcd2c861e7fa0e6fec49e4c6baa1d7bd9b09b6aa929558b36e1ff024be98a7bd654c59b5d4cc681f0484feedc49a314adce562456cf7812f7e01483c4c4521c5d01e989d476b27a9726c83a9ca932715bcf98ba76d6ce67bdc7d73ac54bd796330957afa80a4ab7d59860e7748b4d59d71ae3bf5845195371ff828b20d129d5ee95d3c2c88b603ac919b94bbfd25c0e8ba1ef69b12c794672d117f5cec92f961cdfc3e8772c28520925532cb52b69ff06e4b172dd', '\x02480d636460606805e2d4f36e5ad3b2ff1d6c730bfb20fd76e3eeced4a2e812d61dacab5d9e30e675be9a7947c3a3f48b5ce7dc7d1947cd3f7fb62d31fc116af7fc51fa8ef0aac573a6fdf4b8947aafffa8e7c58b51ce4fbc394ef8d906f3b9cd6378a6a2fad38c75e3fddd899642ec7527f8b87bd709e847af165df25b5042a9a2594ef469f6dfcfa2f7eb1a3532eabebbccccf00dff69ad639bc8799b4de8f6eb78bf47390ffb662fab98ab1f3e35c179b9cdc379b7429fed7f125bf1d08761a36f87c9b1406bc5bebbef9ba6edf968c23cf3a5adf0fe95d7e4f5eedfb2b7bf38ef85e1971a1ee1abf5d65ecaf62a9e814ee10a060be59e991798ae614e133d29699c9115109d2363b9462db322a056a8f59e9081a94092aea945f42d5dafbd0bf73f9ae933a3ff6259716b518dec3c8317f1067fbed47edf175fb8708d81da22ae2742a2ad1a068b0cbef57bd93c0d0b6778a962e07c65b59ae126468699ae42dfa7454f38c23a7fbed5d634218673450cb5dbf67ff42b9e707bb6eff792ac9a59bc9bd7ca397131dc4a9fec726b4be6eabe03ab2f8a1ed7c83cf9dc65b570965cddc4c5724fbf2e5a7cc2c4eaa6e9e298fdbf044a4aea27f14688163f77586555f7c2ff78f913c37dc5ef45b3d97e72ae7d5aec3cc35623cde3e175d903972d7f5d8b3ffaa366f795d4c5453f236eef649efa2433f35dba96fa21f6cee7bf9c6ed609e52e9b9264eeef7156ac6ed7fc4589ab923e6c607d377d67f3a7c7be5b16291d9cf7f4536cf80236a6b389879fcb25f24b88ca55ae668a781e67a1b56d916bfc7d23ae1319aedb1f8b2f33b19e17b2b594e1b66bb68974e09e05eb17bbb208cf6a6798d3c41f5b7992c3cdebdfe35cf7e7e52671dff62cf826baf389ef8c1932cdaabdc5bb0c1cedb74644cf49a9ac3e92356fda3e9e09e5d2fca7fa249dddc36f1df1f4ef5919daa5b94ce5cce21ea383c752f6ef3b95fbc6ec54f03313b37f7dfec6734d5cc21c4318433d9c6d5c5ebafc8ad5da3f5dcf3edab923d9d825ded1de2d57d549d4c53a28ddba4fc0c2566f95697565a674adb741b74aa58962ae76f945ddf59b962db3556b48f7d9131ec526612caa611a65c96266afaea7a1c6962564901aec165dc4a8efee61e3e8a99aa6a3e52e6a23c12c1d19a967a0c0ad6b60b4d651d7f2d65528b87107c4b87bf5365c001be3c1bd8757efdeba7d0f2407537913a610c2009a0393413060d640d55ebb0a13b80a12b11b0c0000ae06f541', 'numpy', 2, 1, '', '[["latency","warm","monotonic",21,133,5.07222989656323e-6,5.067515610848944e-6,5.085610848944182e-6,null,["outliers"]]]');
INSERT INTO public.record VALUES (5, '20261115-213448-18be', '19b2d4b9843f426c', '69f4824fc75471be', 'fault', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:48.311+00:00', 0.23437194900179747, '\x035866f437e3cdedd8c96e03210c00d03f1a79c5a67f3393099744eaa9ff5f03caa64c12295bd5aa47909090c17e980b8ea75cc449caca540ca77a3cadf094f16b5bebd081f54d749a55d2cf884fecb35fb5abb2bf8ef19b00ff53f9f35476c91b836ec754d2e008aa965c902003d9829c923092ee4c4ecd920005c028296ae4c5fd52a2552a91f9b295f153c04b56e240f00e2b9fa7a39a83467b8468e62d6e7b2a23ce3b2a894908dde299f71e317b113946331c6f069e9ad96617c8acebabba7b31c5d195abba7f1ecc1ebb83977dfc4bb8a4792d3e95b1cc338c13f9153e593ec40746bc9b4f6261c32c39eebf659328470f72fa0df90351ef', '\x02480d636460606805e2855ce7baea66dfb16b894cbced717c3bcb9e231a799bc2ec2c64ab33a6d41f5e6a5771666581b4cbdad7312f78142f881df7b67f9bb63458f5c083cbff637343d7c9b26c4fde6e7d7dbb6ab842e903e5ad19ad9ab946ca723d27bb1fd9a4dd77dab9947d49c286cdff5c78f2b4b89e5ade6991b50bcf3bbf625a5da0f6aebd5a1edb9212162baca80bef913d139abe423fcfdfafae77baff7196c3890be3253335f6a5141806ca73bbd63ff7dbfd43e186a193d73221f3eca7b5b6c56629a2a5cf256756f5fe9e649eb9decbb0fcd287b556858757c92d38734595a35b5932b846d5306687b873e7872b9765aa9f5d6cdca951e874c458f2fea6027f65433eb9e0f4b009fa5a1dbd0b258faf9dde58b14d415f4edc303f6a8b445ced3559ae19ee5ec67c77fa0f7b2bb62af2bf5cb558ba24d9e9d0e489423e17de74c71c737f1262e7af72e3e566466bbdc9be0559536399f97e9e0c5afc7cda2381faf777740d95b4d7e6f9cddbba5637fbd16e45b12fa2a78514bfbc69bc65fd7ee7daf818d36d963f38ccae692e16dfbbf34cbbd2ab4f0b6cfd2d8d5b2ebfd7a9727965d8b0f8f2a9035d734e45971d6c5ebcccf91acbf553cf37097af09aff32ff5e37f5e4efe907cc856fee3bb3d9dc32f6da77edc52e67a317cfc99c2e97f9f3c8ab3bf9d11a6fcdfd8cfb9cfba7b2f85f0bf8f35a2bc4db257dd6de9245b12b1b67b2a79ab15a996e54d09ef5b76cf3a156d92f7f3644f79b3feaf6d7feb52b70c629ff0659e7de08ed57c75502af999b2f7a17cc74c3d38cd52b60b626a74d69f37fd94bf3de1f3b932b561c6cbf63b1ef0ffdd997c2fe2417ee78f9e99c93c3ea17b79fd6aaf92e4fdc7ff2cdc60d13efd78a85fbf7aeb35a5dca3bfdc596db8dfdc201f74ff197e87338ad9be27ee0fceaa8e5325527cc7e3b24cf727993145965e62c767fc9f55ca1d34f2d97f8f1bce15cb8e2c494ddc79e4edf2df6c9eca5ee737159839baf4e7f63905e63707de22e9507dff6dcfd63f8b2e050e0738eac5fd784d7f2dff9b8f9b6e0d3d75f1fd970b17f7f9eb3fc65c9ab69157f7998ff3cc9d795bff771cdd2df169f7899a6fe147d58f0efb6d7c2fe2f7fa69f7ca6f05cf597b1f827f607fcff36709c1162917df7274169baf95f213e99ef57fe7330fcf824fee3cd7abedfd27ff66cd90c845bb66cdbbc194801d9db80782788b3032cb367f336100d12d80e560264efd9bd67dfcee33b41ea37ef8468051b02d20a14dab21da812ac1bac64cb6ea0a15b7601ed008982ec0062a05290cacd10d3ed0603000006640b1c', 'numpy', 2, 0, '', '[["latency","warm","monotonic",87,133,1.1950898254576416e-6,1.1918714346530439e-6,1.197630055342699e-6,null,["outliers"]]]');
INSERT INTO public.record VALUES (6, '20261115-213449-ff3e', '94b4338fe2096c7b', '1d2a77f1e464dbb9', 'add', 'forward', 'numpy-cpu', 'ok', '2de48bfafdd0ab28', '2026-11-15T21:34:49.850+00:00', 0.26540327099792194, '\x035866f437e3cdedd8dd6ac3300c05e057d91314e948b6a4bd4d829bcbbdffe5e4b423e9fa33d63614c69c2b07428c85f51d7cc5716e18cc26de6bd5368e91eb991bcfd06690cf51aff9f3de3e8fb5bc01fb768affe8efbf94af97f200f941ca9e23162a914741b03c7a094e2e65892e2b39192261e1a15eb4661cb95f4aadf32d80d8752b85e2ede34c4aa0bfdddac9e7c96849084c89941971c26416e68bc9ac8882dd724f575a326ba95011431431ef126dc52767b75ffbc9c840f50dcf7a09ceaede9a4d755682e7d77f5ecdbe670b997df60a2f298ff4e9f82d9f687bf5711aa6d66818e13738157dd7d879a1bb39452d4a02a33439c09199eb415e3f01f04f543f', '\x02480de54e8d5bd28716f66b0aa162f59065b6c0a64b4d52c2e647a6894ccba669d3502392d296a884b639d2442dc42f7ea0186a8462a8a5d6b4b996a644145e52e7c5e9bcad50bbccae7be44a46187eb0743fead9ee1f71dfe739e73de77dcf39cf31373333d382018137e7ba8abdb6cdbac6050f518e6e51e1e038abc587d28b97461f9f7a586e5f1eae9205fb7faef7dc889aa5b63f0d6adc5793949bd4dee6e3de18fc96d4e11854db4cd3e9ef0955c1b4b3f3d2ad395fe83358f341db498e367710079e21fa99c1d9efa20bd5525a61e9b8b9fe239bd2e8e583d3441f5fd229aa4c60ec41b540b5751bcd29a4335d8ef86955328ec0a4390ee4f22e2aed6a12c4c53e3aea1ab331219be57a8512dda8e0e052a44fb371ae3b38299c8cff2276c07b1182f067d014179d0cc63ccbb04c7eec78fe9e42421364145e61f9af993b32e3a436bb3b7adbb542064ed08f70866bf7a4cf8a4f56d228d38a9f4ff85afb3afbad7bb87c33ba77c398e651ab77eb9980c0bbcd2cc225b3837e77e7598296d7e2dcadc726cfe75f69919ca4431dfee9bfb0b8ffb277e726c9ab9b7b6bc2fe654d18f4dbab80d15deead4dcc6a20446fe553d661fbf564a57dfa73f665d9002ba07a554bca17d10502d24d46ac2b52ea2c9a697b4417ed340c6db16ad6e57dac7460f0a873151f91ef8919e947fa1a4347a3fb637d4b1f058c969210c5a2dffa11e15ea46252b41b846244432e8769a4c5e234fa336ffea09c176708b32dddabbc39615f1afb4b639bc3f1d3e4d5d350f438ba73c1924f85889df3ccc7695d12cfe6e78909990b6678b2c59613a395ca631edf56b00463a163eab9c75fee2436105ab1e18895f2126a12c6b2af262c96614f4dbb4b578c9f638f658ca1cec173d20afc24af33f61b1a9cfa25ebfea0976f73db37b7206dee402e9e081baecf570f139fb8a2246396c0172f7c6e3392e94907772f47c43ea1ecd14d4f8458d15d12219b7f90192d2697d5e3ace0ab9ad345edca5dda81d25c8f145de181ca85542b40f76926357e68ea00b56d2a333ef372a574937a46ca3ebcb027fe699c71ada308668be74036597dfa877a796438b572d92364dca7381fdfa59841df809bf5e092a40baf3b88f14ba13fa26b95dbd0bbb7bfb67c2c6aee26d5f2a76731447bc3f5eeeb2efa4e81d425c458365de2d4d91948e0dcb1bdb4539a8ad512a0df191c52f7adcbd1fdbb4a302187f6ce67a5bb35258748cab2d80d0602867d23316b29dfd9f8bbffc6a877787ad421bea1eaee8e0da84cbd131f6b6190dfafce183abbd622dab0e661136d28f4b2b1a68c860f647bd0530fff43579013d32778250e1d1da8b36fbd6fd0a862a251ad23885ba8142bc3ade10c040ad1c15fba33cc5c2ab3c912a14a31fa35e7775f9f8977b081758fe8e919df45c568647536a999447ce42f0ecc18ab89f9fb79e79660f1d622d9c5e46ee4b302c65715c7be2f31165424af0fddfeea01de353b4b27d16dfd09fb153e70c4d229adcc2d6f0eb14b27effc72578057227ed705357724c8f8c2cd3b2fa5f778c4855fd9944f5efa0d8ebc8153da785cc660031fdee559b7da5b36dc55578fa3d7fdc83d9ab2621b462be9de1a9428e5be1ded8eec45cea4aa36fb2b306a6e5e9be645a7b51b52d3470f5aadda86e5cbc94d5398cd0fbe4186c89c22c8509a9a26431b9bdcfbaf4734452e19dd8d89119e4ade354fc55497ca3d70030cbd1a99cb7c59a2f1fa0c7d9b1e89ada39153909820deef38adf5c835f7c4e3783254e5293c34ed546ffb5300ee37fd7830d982bb521da8c25b0c121c7b24169b025cca5d8e9b5b090e44add7392612f7e7707bb02f35337379a16fd86ed88807b0049aafa74ab1dbddaecf2ee2767a11c737b57cbd7173d1881dac65ece75b27dfca79691787b398aad645a46a4250e39e04ad3a72692ad89ded0cbb9a9409ef17ce130a4464ac45144c7a1260c7ffbac3aec717497339ef7678e10262f2ce7f08a7c571a24865edca2148d491c8f6a19cc9d688da1cc6b5a1c9a1af77ca67df60e44dc4b70593ebc2634ea57d267ea99d0190e2f61748b88f0ab2a28eb3a015552c8ada133057c6fb96439f3f918b1bea1b1ac0f8c060d5d420140a9b85c2c66b209bd0ca01385c80cd01017000a09a0db001e02a00026480cf655703261da807001e50f34135f5a06b1af80036076cc07d0eef2fd17410f478e0b28941b3d664559b6e714d8953550b9afcf7fbff3b044a1fc005474c320f4c3cd33c50c77e5f9a5e053b5363cae0777f63ffff13fe04c0b37c96', 'numpy', 2, 0, '', '[["latency","warm","monotonic",220,237,2.2854040404040407e-7,2.278585858585859e-7,2.2959040404040404e-7,null,["outliers"]]]');
INSERT INTO public.record VALUES (7, '20261115-213449-ff3e', 'f508f4fc9468d334', '24e6258bec158e7a', 'add', 'backward', 'numpy-cpu', 'skipped', '', '', 0, '\x035866f437e3cdc3518f1b99a49a19995a24a5261b9a5aa49a832a4370c1939802ae90312b7533a0e5a0e2131a97c455ecd4aec60956c0a3552581aa12d67b42aa2fe10d28588f0a5850e703db7799c90a299969e00c5d92094e713a0ac5a0212d05707b4d01a9018756dfc20b4868d9022dee203cd4220a5a9ee3ce5164641a501f80b24c030012910f62', '\x02480d63606060000000040001', 'numpy', 2, 0, 'numpy-cpu has no automatic differentiation, so no phase backward', '[]');
INSERT INTO public.run VALUES (1, '20261115-213445-21ff', '2026-11-15T21:34:45.487+00:00', '9a5f87e37fe53b6c', 4, 'old', 'opmark run add --backend numpy-cpu', '0.6.0', '', '0123456789abcdef0123456789abcdef01234567+');
INSERT INTO public.run VALUES (2, '20261115-213448-18be', '2026-11-15T21:34:48.055+00:00', 'c9e19800dd426a0f', 1, '', 'opmark run add --backend numpy-cpu', '0.6.0', '20300101-000000-abcd', '0123456789abcdef0123456789abcdef01234567+');
INSERT INTO public.run VALUES (3, '20261115-213449-ff3e', '2026-11-15T21:34:49.623+00:00', '31afaebe8ede5250', 2, '', 'opmark run add --backend numpy-cpu', '0.6.0', '20300101-000000-abcd', '0123456789abcdef0123456789abcdef01234567+');
INSERT INTO public.run_note VALUES (1, '20261115-213445-21ff', 'description', 'as begun', '2026-11-15T21:34:45.487+00:00');
INSERT INTO public.run_note VALUES (2, '20261115-213445-21ff', 'label', 'label 0', '2026-11-15T22:13:20.164+00:00');
INSERT INTO public.run_note VALUES (3, '20261115-213448-18be', 'description', 'as begun', '2026-11-15T21:34:48.055+00:00');
INSERT INTO public.run_note VALUES (4, '20261115-213448-18be', 'label', 'label 1', '2026-11-15T22:13:20.166+00:00');
INSERT INTO public.run_note VALUES (5, '20261115-213449-ff3e', 'description', 'as begun', '2026-11-15T21:34:49.623+00:00');
INSERT INTO public.run_note VALUES (6, '20261115-213449-ff3e', 'label', 'label 2', '2026-11-15T22:13:20.173+00:00');
SELECT pg_catalog.setval('public.finding_number_seq', 2, true);
SELECT pg_catalog.setval('public.record_number_seq', 7, true);
SELECT pg_catalog.setval('public.run_note_number_seq', 6, true);
SELECT pg_catalog.setval('public.run_number_seq', 3, true);
ALTER TABLE ONLY public.bench_case
    ADD CONSTRAINT bench_case_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.environment
    ADD CONSTRAINT environment_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.finding
    ADD CONSTRAINT finding_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.opmark_meta
    ADD CONSTRAINT opmark_meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.record
    ADD CONSTRAINT record_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.record
    ADD CONSTRAINT record_run_id_task_id_key UNIQUE (run_id, task_id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_id_key UNIQUE (id);
ALTER TABLE ONLY public.run_note
    ADD CONSTRAINT run_note_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (number);
CREATE INDEX ix_run_note_run_id ON public.run_note USING btree (run_id);
CREATE INDEX record_case ON public.record USING btree (case_id, backend);
ALTER TABLE ONLY public.record
    ADD CONSTRAINT record_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.run(id);
ALTER TABLE ONLY public.run_note
    ADD CONSTRAINT run_note_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.run(id);

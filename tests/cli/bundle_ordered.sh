# Ordered heads of Gemma 4's drafters: written from a bundle's clusters or list, what the file has
# is what the tool says, each fault by its name, and the file read back as clusters.
. "$CLI_TESTS/lib.bash"
mkdir d
head_file d/model.safetensors 300
config() { # FILE NAMES... : of a drafter whose head is its own, and what is said beside
    local file=$1 text='"vocab_size": 300, "hidden_size": 8, "tie_word_embeddings": false'
    echo "{\"architectures\": [\"Gemma4AssistantForCausalLM\"],
        ${2:-\"tie_word_embeddings\": false},
        \"model_type\": \"gemma4_assistant\", \"text_config\": {${3:-$text}}}" >"$file"
}
config d/config.json
echo '{"suppress_tokens": [7]}' >d/generation_config.json
build() { cluster-build --model d/model.safetensors --ordered "$@"; }
ordered() { specrt-bundle export "$1" --drafter d --for gemma4 "${@:2}"; }

# Clusters that divide the vocabulary, for any number of threads.
accepts build --clusters 20 --schedule 3 --threads 1 -o one.specb
prints "300 rows of 8 columns in 20 clusters of 15 to 15
*router centroid, clusters by level 3: about 45 rows on average"
accepts build --clusters 20 --schedule 3 --threads 3 -o three.specb
same one.specb three.specb
refuses 2 "*--clusters: expected a divisor of the head's 300 rows for --ordered, found 7" \
    build --clusters 7 -o x.specb
refuses 2 "*--clusters: expected a divisor *, found 0" build -o x.specb
refuses 2 "*--hot and --distinct: expected -o, a bundle with ranks" build --clusters 20 --hot 3 \
    --json
refuses 2 "*--hot: expected fewer than the 15 slots *, found 15; for a list alone: *" \
    build --clusters 20 --hot 15 -o x.specb
refuses 2 "*--hot and --distinct go with --ordered" cluster-build --model d/model.safetensors \
    --hot 3 -o x.specb
refuses 2 "*--ordered and --stored: expected --router centroid" build --router none --json

# A dense drafter becomes one with an ordered head; what the file has is what was said.
accepts ordered one.specb -o o --json
has file=o engine=gemma4 n_clusters=20 topk=3 n_slots=15 n_tokens=300 n_hot=0 batch=2.0741
holds o/config.json use_ordered_embeddings=true num_centroids=20 centroid_intermediate_top_k=3 \
    tie_word_embeddings=false text_config.tie_word_embeddings=false \
    architectures=Gemma4AssistantForCausalLM
same d/generation_config.json o/generation_config.json
accepts specrt-bundle check o --for gemma4 --json
has ok=true 'kind=a drafter with an ordered head' ordered.n_clusters=20 ordered.topk=3 \
    ordered.n_slots=15 ordered.n_tokens=300 ordered.n_hot=0 ordered.batch=2.0741
warns "*above about 2 sequences at a time engines read more for 3 of 20 clusters than for the \
whole head"
accepts ordered one.specb --clusters 20 --topk 5 -o five
warns "specrt-bundle: five: an ordered head of 20 clusters of 15 slots, 5 of them scored; 300 \
tokens have a slot, 0 one in each cluster
specrt-bundle: five: reads less than the whole head up to about 1 sequences at a time"
holds five/config.json centroid_intermediate_top_k=5
cmp o/model.safetensors five/model.safetensors || fail "other tensors"
refuses 2 "*--clusters: expected 20, those of the bundle, found 30; *" ordered one.specb \
    --clusters 30 -o x
refuses 2 "*--topk: expected at most the 20 clusters, found 21" ordered one.specb --topk 21 -o x
refuses 2 "*--hot: expected 0, the tokens that are in every cluster of the bundle, found 3; *" \
    ordered one.specb --hot 3 -o x
refuses 2 "*--for gemma4 goes without --size*" ordered one.specb --size 3 -o x
refuses 2 "*--clusters, --topk and --hot go with --for gemma4" specrt-bundle export one.specb \
    --drafter d --for vllm --topk 3 -o x
# What engines would not load is refused before anything is written.
cp -r d odd
config odd/config.json "" '"vocab_size": 300, "hidden_size": 9, "tie_word_embeddings": false'
refuses 3 "*odd: tensor \"masked_embedding.centroids.weight\": expected [[]20, 9[]], *" \
    specrt-bundle export one.specb --drafter odd --for gemma4 -o odd-out
for text in '"x"' '[1]' 5; do
    echo "{\"architectures\": [\"Gemma4AssistantForCausalLM\"], \"vocab_size\": 300,
        \"model_type\": \"gemma4_assistant\", \"text_config\": $text}" >odd/config.json
    refuses 3 "*odd/config.json: text_config: expected an object, found *" \
        specrt-bundle export one.specb --drafter odd --for gemma4 -o odd-out
done

# Read back: the same clusters and centroids.
accepts cluster-build --model o --stored --json -o back.specb
has n_clusters=20 n_members=300 schedule=3 size_least=15 size_most=15
accepts ordered back.specb -o again
for file in config.json model.safetensors; do same o/$file again/$file; done
refuses 3 "*d/model.safetensors: no ordered head: *" cluster-build --model d --stored -o x.specb
refuses 2 "*--stored: expected no --ordered*" build --stored --clusters 20 -o x.specb

# Tokens in every cluster, by rank, and those that no slot is left for; fewer leave room for copies.
mkdir t
cp "$CLI_TESTS/../golden/tokenizers/bytes.json" t/tokenizer.json
head_file t/model.safetensors 354
config t/config.json "" '"vocab_size": 354, "hidden_size": 8, "tie_word_embeddings": false'
seq 0 353 | shuf --random-source=t/tokenizer.json >list.txt
accepts specrt-bundle import list.txt --tokenizer t --size 100 -o ranks.specb
ordered_t() { specrt-bundle export "$1" --drafter t --for gemma4 "${@:2}"; }
hot() { cp ranks.specb "$1" && cluster-build --model t --tokenizer t --ordered --clusters 6 \
    --schedule 1 -o "$@"; }
accepts hot words.specb --hot 20
prints "*0 copies, 20 rows in every cluster, 100 left out as too rare*"
accepts hot hot.specb --hot 20 --json
has n_hot=20 n_copies=0 n_members=354
accepts ordered_t hot.specb -o hot --json
has n_clusters=6 topk=1 n_slots=59 n_hot=20 batch=1.9661
accepts specrt-bundle info hot.specb --json
has centroid.n_members=354
accepts cluster-build --model hot --stored --json -o hot-back.specb
has n_members=354 schedule=1
accepts hot few.specb --distinct 200 --json
has n_hot=0 n_rows=200 n_copies=154 n_members=354 size_least=59 size_most=59
accepts ordered_t few.specb --topk 2 -o few --json
has n_tokens=200 n_hot=0 topk=2
accepts ordered_t hot.specb --topk 2 -o twice
warns "*warning: twice: engines score its 20 hot tokens once for each of 2 clusters; --topk 1 *"

# Counts of a bundle weigh the rows of a centroid; the clusters are the same without.
printf 'the cat sat on the mat, and the rat ate that %.0s' {1..9} >text.txt
accepts vocabtrim-calibrate --tokenizer t --corpus text.txt --size 300 -q -o counted.specb
for name in plain counted; do
    accepts cluster-build --model t --tokenizer t --ordered --clusters 6 -q -o $name.specb
    accepts specrt-bundle extract $name.specb centroid -q -o $name
done
cmp -n $((48 + 4 * 7 + 4 * 354)) plain counted || fail "counts change the clusters"
! cmp -s plain counted || fail "counts do not weigh"

# A list alone, repeated in every cluster: FR-Spec's.
accepts ordered_t ranks.specb --clusters 6 --hot 59 -o list --json
has n_clusters=6 topk=1 n_slots=59 n_tokens=59 n_hot=59
accepts specrt-bundle check list --target t --json
has ordered.n_tokens=59 ordered.n_hot=59
refuses 3 "*ranks.specb: *section 'centroid'*" ordered_t ranks.specb --clusters 6 --hot 58 -o x

# Faults, each by its name.
mkdir e
centroids=masked_embedding.centroids.weight:BF16:2,2:0000111122223333
places() { echo "masked_embedding.token_ordering:I64:$#:$(i64 "$@")"; }
rows=model.embed_tokens.weight:BF16:4,2:003f103f203f303f403f503f603f703f
weights() { safetensors e/model.safetensors "$@"; }
small='"vocab_size": 4, "hidden_size": 2'
set_to() { config e/config.json "\"use_ordered_embeddings\": $1, \"num_centroids\": $2,
    \"centroid_intermediate_top_k\": $3${4:-}" "${5:-$small}"; }
finds() { found "$1" e "${@:2}"; }
set_to true 2 1
weights $centroids $rows $(places 3 1 2 0)
finds "" && finds "" --for gemma4 && finds "" --for vllm && finds "" --for sglang
set_to false 2 1
finds ordered-flag
set_to true 2 1
weights $rows $(places 3 1 2 0)
finds ordered-tensors
weights $centroids $rows
finds ordered-tensors
weights $rows
finds ordered-tensors
set_to false 2 1 "" "$small, \"num_centroids\": 2"
finds ordered-keys
set_to true 2 1
weights masked_embedding.centroids.weight:BF16:1,2:00001111 $rows $(places 3 1 2 0)
finds ordered-shape
weights masked_embedding.centroids.weight:BF16:2,1:00001111 $rows $(places 3 1 2 0)
finds ordered-shape
weights $centroids $rows $(places 3 1 2)
finds ordered-shape
weights $centroids model.embed_tokens.weight:BF16:3,2:aaaabbbbccccddddaaaabbbb $(places 3 1 2 0)
finds ordered-shape
weights $centroids $rows masked_embedding.token_ordering:I32:4:03000000010000000200000000000000
finds ordered-type
weights masked_embedding.centroids.weight:F8_E4M3:2,2:00112233 $rows $(places 3 1 2 0)
finds ordered-type
weights $centroids model.embed_tokens.weight:F8_E4M3:4,2:aaaabbbbccccdddd $(places 3 1 2 0)
finds ordered-quantised
finds "" --for sglang
for id in -1 4; do
    weights $centroids $rows $(places 3 1 $id 0)
    finds ordered-range
done
refuses 3 "*tensor \"masked_embedding.token_ordering\": place 2: expected a token from 0 to 3, \
found 4; *" cluster-build --model e --stored -o x.specb
weights masked_embedding.centroids.weight:BF16:3,2:000011112222333344445555 $rows $(places 3 1 2 0)
set_to true 3 1
finds ordered-clusters
weights $centroids $rows $(places 3 1 2 0)
for k in 0 3; do
    set_to true 2 $k
    finds ordered-topk
done
set_to true 2 1 "" '"hidden_size": 2'
finds vocab-size
set_to true 2 1 "" '"vocab_size": -9223372036854775808, "hidden_size": 2'
finds "vocab-size ordered-shape ordered-shape"
set_to true 2 1 ', "tie_word_embeddings": false'
finds ordered-tied --for vllm
finds "" --for sglang
set_to true 2 1 "" "$small, \"tie_word_embeddings\": false"
finds ordered-tied --for sglang
finds "" --for vllm
head=lm_head.weight:BF16:4,2:bbbbbbbbccccddddaaaabbbbccccdddd
weights $head $centroids $rows $(places 3 1 2 0)
set_to true 2 1
finds "ordered-tied ordered-tied"
set_to true 2 1 ', "tie_word_embeddings": false' "$small, \"tie_word_embeddings\": false"
finds ""
weights $centroids $(places 3 1 2 0)
finds ordered-head

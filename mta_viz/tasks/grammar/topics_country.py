"""Words of the grammar's topics outside the town: coast, farm, forest, mountain, science and home.

Deeds are verb phrases in the base form; scenes are whole clauses in the past tense.
"""

from mta_viz.tasks.grammar.topic import Topic, topic

HARBOUR: Topic = topic(
    places="harbour; quay; lighthouse; customs house; boatyard; breakwater; slipway; sailors' chapel",
    things=(
        "net; anchor; rope; lobster pot; oar; barrel; lantern; chart; telescope; oilskin coat; fishing "
        "rod; crate of herring; compass; sea chest; bell buoy; bucket; sail; brass sextant; cork float; "
        "model schooner"
    ),
    people="fisherman; captain; pilot; sailor; lighthouse keeper; shipwright; cabin boy; harbour master",
    adjectives="tarred; salty; rusty; weathered; barnacled; sturdy",
    deeds=(
        "coil the ropes; mend the nets; wait for the tide; scrape the hull; row out to the island; signal "
        "to the ferry; sell the catch; hoist the sail; study the clouds; paint the name on the bow; drop "
        "anchor; tell stories about storms; bail out the dinghy; trim the lamp"
    ),
    scenes=(
        "gulls circled above the masts; the tide crept over the mud; a foghorn moaned; waves slapped the "
        "quay; the ferry turned into the wind; nets dried on the railings; the lamp swept across the "
        "water; a seal watched from the rocks"
    ),
)

GARDEN: Topic = topic(
    places="greenhouse; rose bed; orchard; pond; summer house; hedge; vegetable patch; potting shed",
    things=(
        "rake; watering can; tulip bulb; flowerpot; spade; trowel; packet of seeds; wheelbarrow; "
        "sunflower; pumpkin; garden chair; sundial; beehive; bird table; fern; basket of apples; lavender "
        "bush; straw hat; scarecrow"
    ),
    people="gardener; beekeeper; neighbour; botanist; florist; old aunt; grandson",
    adjectives="home-grown; muddy; cheerful; weathered; prize-winning; green",
    deeds=(
        "water the seedlings; prune the roses; plant a row of beans; pick the raspberries; dig over the "
        "soil; chase the snails away; rake the fallen leaves; feed the goldfish; cut the grass; tie up the "
        "peas; sit in the shade; collect seeds for spring; burn the dead wood; name every flower"
    ),
    scenes=(
        "bees hummed in the lavender; a blackbird sang from the gatepost; dew covered the lawn; petals "
        "fell into the pond; a frog splashed under the lilies; ripe plums dropped into the grass; "
        "butterflies settled on the wall; ivy climbed towards the gutter"
    ),
)

FARM: Topic = topic(
    places="barn; stable; dairy; well; hayloft; pigsty; duck pond; wheat field",
    things=(
        "saddle; milk churn; pitchfork; horseshoe; egg; bale of hay; bridle; cowbell; butter dish; plough; "
        "lamb; grain sack; feeding trough; harness; goose feather; cart wheel; hen coop; scythe; milking "
        "stool"
    ),
    people="farmer; shepherd; milkmaid; blacksmith; stable boy; vet; ploughman",
    adjectives="sturdy; sold-off; rustic; stolen; fine; mud-covered",
    deeds=(
        "milk the cows; saddle the mare; gather the eggs; shear the sheep; mend the fence; plough the "
        "lower field; churn the butter; count the geese; drive the cattle home; fill the trough; thresh "
        "the barley; train a young sheepdog; stack the hay; look for the missing calf"
    ),
    scenes=(
        "a cock crowed behind the barn; the cows waited at the gate; swallows nested under the eaves; the "
        "mill wheel turned slowly; crows followed the plough; the hay smelled of summer; a foal stumbled "
        "to its feet; thunder rolled over the pasture"
    ),
)

FOREST: Topic = topic(
    places=(
        "clearing; stream; hollow oak; hunter's lodge; footbridge; charcoal kiln; ranger's hut; fallen pine"
    ),
    things=(
        "axe; mushroom; acorn; rucksack; tent; lantern; feather; walking boot; map; bundle of sticks; pine "
        "cone; water bottle; snare; blanket; hatchet; birdcall; hunting horn; basket of berries; antler"
    ),
    people="woodcutter; ranger; hunter; hermit; tracker; scout; naturalist",
    adjectives="mossy; soaked; scorched; damp; leftover; trampled",
    deeds=(
        "follow the tracks; gather firewood; pitch the tent; listen to an owl; fell a dead birch; cross "
        "the stream; search for mushrooms; carve a name into the bark; lose the path; sleep under the "
        "stars; spot a woodpecker; boil a kettle; mark the trail with stones; watch a family of badgers"
    ),
    scenes=(
        "an owl hooted in the dark; mist lay between the trunks; a twig snapped; squirrels chased along "
        "the branch; the brook murmured over its pebbles; moonlight silvered the birches; a deer lifted "
        "its head; leaves whirled across the path"
    ),
)

MOUNTAIN: Topic = topic(
    places="summit; glacier; mountain hut; cable car; ridge; ravine; shepherd's cross; frozen lake",
    things=(
        "ice axe; climbing rope; thermos flask; ski; sledge; woollen glove; crystal; altimeter; snowshoe; "
        "tin mug; pair of goggles; avalanche flag; rope ladder; bar of chocolate; stone marker; wool cap; "
        "candle stub"
    ),
    people="mountaineer; guide; skier; geologist; innkeeper; rescuer; goatherd",
    adjectives="frosty; dependable; icy; Alpine; snow-covered; frost-bitten",
    deeds=(
        "climb the north face; rest on a ledge; melt snow for tea; cut steps in the ice; reach the hut "
        "alone; sketch the valley; tie the safety knot; watch the sunrise; slip on the loose stones; wax "
        "the skis; sign the summit book; turn back before the storm; collect samples of granite; shout to "
        "hear the echo"
    ),
    scenes=(
        "snow began to fall; an eagle hung over the pass; the wind howled across the ridge; clouds boiled "
        "up from the valley; ice cracked in the distance; the peak glowed pink; stones clattered into the "
        "gorge; goat bells tinkled far below"
    ),
)

RIVER: Topic = topic(
    places="bridge; weir; towpath; ferry landing; water mill; boathouse; lock gate; island",
    things=(
        "canoe; paddle; fishing line; raft; barge pole; willow basket; trout; jar of tadpoles; punt; "
        "cushion; picnic hamper; life belt; pebble; paper boat; hook; waterproof bag; toll coin; rowing "
        "trophy"
    ),
    people="boatman; ferryman; angler; swimmer; lock-keeper; bargee; rowing coach",
    adjectives="dripping; smooth; sunken; slippery; rescued; muddy",
    deeds=(
        "paddle upstream; cast the line; open the lock; swim to the far bank; skim a flat stone; moor the "
        "barge; catch a pike; steer around the rocks; build a dam of twigs; pay the toll; dangle both feet "
        "in the water; untangle the line; race the swans; picnic under the willows"
    ),
    scenes=(
        "a kingfisher flashed past; the current tugged at the reeds; swans drifted under the bridge; the "
        "water rose during the night; ripples spread across the pool; a heron stood in the shallows; the "
        "mill race foamed; dragonflies hovered over the lilies"
    ),
)

OBSERVATORY: Topic = topic(
    places=(
        "observatory; dome; roof terrace; lecture room; instrument room; radio mast; telescope; library "
        "stairs"
    ),
    things=(
        "star chart; notebook; lens; photographic plate; prism; eyepiece; astrolabe; logbook; calculation; "
        "slide rule; pocket lamp; diagram; moon map; magnet; glass slide; chronometer; spectrum; weather "
        "report"
    ),
    people="astronomer; assistant; night watchman; physicist; student; professor; meteorologist",
    adjectives="dazzling; accurate; unreliable; delicate; blurred; astonishing",
    deeds=(
        "count the meteors; adjust the mirror; measure the angle again; record the temperature; discover a "
        "comet; calculate the orbit; clean the great lens; compare two photographs; predict an eclipse; "
        "wait for clear skies; doubt the result; draw the craters; publish the table; calibrate the clock"
    ),
    scenes=(
        "Saturn rose above the hills; a meteor streaked over the dome; the clouds finally parted; the "
        "motor hummed in the dark; frost formed on the railing; the moon slid behind the chimney; the "
        "needle trembled; the Milky Way arched over the roof"
    ),
)

HOSPITAL: Topic = topic(
    places="hospital; ward; pharmacy; surgery; night desk; laundry; convalescent garden; laboratory",
    things=(
        "bandage; thermometer; bottle of medicine; pillow; prescription; stethoscope; crutch; wheelchair; "
        "glass of water; hot-water bottle; blanket; tray; bunch of grapes; medical bag; syringe; pair of "
        "spectacles; pill box"
    ),
    people="doctor; nurse; patient; surgeon; chemist; matron; ambulance driver",
    adjectives="sterile; donated; reassuring; clean; stained; labelled",
    deeds=(
        "change the bandage; take the temperature; mix the medicine; comfort the patient; write a "
        "prescription; sterilise the instruments; sleep between two shifts; listen to the heartbeat; fetch "
        "clean sheets; count the pills; visit a sick cousin; read the chart; recover from a fever; promise "
        "to rest"
    ),
    scenes=(
        "the night bell buzzed; soft shoes whispered along the corridor; a trolley squeaked; the fever "
        "broke before dawn; the smell of soap filled the ward; an ambulance pulled into the yard; the "
        "kettle boiled in the nurses' room; curtains stirred beside the bed"
    ),
)

INN: Topic = topic(
    places="inn; fireplace; kitchen; dining room; wine cellar; stable yard; staircase; guest room",
    things=(
        "kettle; frying pan; soup bowl; tankard; goblet; ham; pot of stew; napkin; corkscrew; ladle; "
        "teapot; candlestick; bottle of cider; tablecloth; guest book; room key; roast chicken; jar of "
        "pickles; silver spoon"
    ),
    people="innkeeper; cook; waiter; traveller; chambermaid; musician; lodger",
    adjectives="greasy; smoky; Sunday; gleaming; borrowed; weighty",
    deeds=(
        "stir the soup; lay the table; order another supper; chop the onions; dry the plates; pour the "
        "cider; carve the joint; play cards with strangers; complain about the bill; warm both hands at "
        "the fire; air the beds; peel the potatoes; tell a ghost story; ask for a quiet room"
    ),
    scenes=(
        "logs crackled in the grate; laughter came from the dining room; the soup simmered; rain drummed "
        "on the tiles; a coach drew up outside; the shutters banged; the kitchen smelled of garlic; the "
        "landlord's dog growled in its sleep"
    ),
)

WINTER: Topic = topic(
    places=(
        "village green; chapel; frozen canal; snowy lane; schoolhouse; sledging hill; coal shed; churchyard"
    ),
    things=(
        "snowball; skate; mitten; sledge; wreath; gingerbread man; shovel; bobble hat; paper star; toffee "
        "apple; lantern; pair of boots; carol sheet; icicle; woollen shawl; wooden toy; bag of chestnuts; "
        "string of bells"
    ),
    people="vicar; carol singer; grandmother; toymaker; postmaster; skater; lamplighter",
    adjectives="frozen; cheery; colourful; festive; glistening; home-made",
    deeds=(
        "build a snowman; shovel the path; skate across the pond; roast chestnuts; knit a pair of socks; "
        "sing at every door; hang up the wreath; throw a snowball; thaw the pump; wrap the presents; drag "
        "the sledge uphill; light the lanterns; slip on the ice; bake gingerbread"
    ),
    scenes=(
        "snow muffled every sound; icicles hung from the gutters; smoke rose straight from the chimneys; "
        "the pond froze overnight; bells rang across the valley; a robin hopped along the sill; frost "
        "painted ferns on the glass; lanterns bobbed along the lane"
    ),
)

DESERT: Topic = topic(
    places="oasis; caravan camp; ruined temple; dune; salt flat; fort; date grove; cistern",
    things=(
        "water skin; turban; saddlebag; dagger; rug; tent peg; date cake; copper lamp; bead; goat cheese; "
        "incense burner; scarab; map case; veil; clay jar; camel bell; leather pouch; inscription; sandal"
    ),
    people="camel driver; archaeologist; nomad; trader; surveyor; interpreter; pilgrim",
    adjectives="sandy; sun-bleached; decorated; dusty; buried; exotic",
    deeds=(
        "load the camels; dig beside the wall; dig a new well; drink from the spring; follow the caravan; "
        "shake the sand from the blankets; decipher the carving; barter for salt; rest under a palm; "
        "navigate by the stars; unearth a broken jar; fly a kite over the dunes; pitch camp; brew mint tea"
    ),
    scenes=(
        "the dunes shimmered in the heat; a sandstorm darkened the horizon; the camels grumbled; a lizard "
        "darted under a stone; the sun sank like a coal; palms rustled above the spring; a jackal barked; "
        "footprints vanished in the wind"
    ),
)

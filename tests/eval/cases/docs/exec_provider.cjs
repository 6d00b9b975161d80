const [prompt, options, context] = process.argv.slice(2);
console.log(prompt, JSON.parse(options).config.greeting, JSON.parse(context).vars.x, 'flag');
